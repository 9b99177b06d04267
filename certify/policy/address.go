package policy

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"
)

// addressOf returns an IP address that is made from a name, in the spelling that a form asks for. It returns false if
// the form is not one of an address.
func addressOf(form, name string) (string, bool) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // writing to a hash never fails
	sum := h.Sum64()
	four := [4]byte{10, byte(sum >> 16), byte(sum >> 8), byte(sum) | 1}
	six := [16]byte{0x20, 0x01, 0x0d, 0xb8}
	binary.BigEndian.PutUint32(six[4:], uint32(sum>>32)|0x0a0a_000a)
	six[15] = byte(sum) | 1
	v4, v6 := netip.AddrFrom4(four), netip.AddrFrom16(six)
	text, isKnown := map[string]string{
		"{v4}":       v4.String(),
		"{v4octal}":  fmt.Sprintf("%d.%03d.%03d.%03d", four[0], four[1], four[2], four[3]),
		"{v4mapped}": "::ffff:" + v4.String(),
		"{v4number}": fmt.Sprint(binary.BigEndian.Uint32(four[:])),
		"{v6}":       v6.String(),
		"{v6upper}":  strings.ToUpper(v6.String()),
		"{v6long}":   v6.StringExpanded(),
	}[form]
	return text, isKnown
}
