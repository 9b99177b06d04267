package replay

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// What the frames of a WebSocket connection are (RFC 6455, section 5.2), and the
// channels of v5.channel.k8s.io, which are the first byte of a message.
const (
	opcodeBits = 0x0f
	closeFrame = 0x8
	lengthBits = 0x7f

	stdoutChannel = 1
	statusChannel = 3
)

// output reads what a command writes to stdout over an upgraded connection, until the server closes it. If the
// command failed without a word, it is the Status that says so.
func output(resp *http.Response) (string, error) {
	r := bufio.NewReader(resp.Body)
	var stdout, status []byte
	for len(stdout) < bodyLimit {
		opcode, payload, err := readFrame(r)
		if errors.Is(err, io.EOF) || err == nil && opcode == closeFrame {
			break
		}
		if err != nil {
			return "", fmt.Errorf("reading the stream: %w", err)
		}
		switch {
		case len(payload) == 0:
		case payload[0] == stdoutChannel:
			stdout = append(stdout, payload[1:]...)
		case payload[0] == statusChannel:
			status = append(status, payload[1:]...)
		}
	}
	if len(stdout) == 0 {
		return string(status), nil
	}
	return string(stdout), nil
}

// readFrame reads one frame of a server, which does not mask. A message in
// several frames is not put together: the API server sends none.
func readFrame(r io.Reader) (opcode byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	length := uint64(head[1] & lengthBits)
	switch length {
	case 126:
		var n uint16
		if err := binary.Read(r, binary.BigEndian, &n); err != nil {
			return 0, nil, err
		}
		length = uint64(n)
	case 127:
		if err := binary.Read(r, binary.BigEndian, &length); err != nil {
			return 0, nil, err
		}
	}
	if length > bodyLimit {
		return 0, nil, fmt.Errorf("a frame has %d bytes (expected at most %d)", length, bodyLimit)
	}
	payload = make([]byte, length)
	_, err = io.ReadFull(r, payload)
	return head[0] & opcodeBits, payload, err
}
