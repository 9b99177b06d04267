//go:build !linux || race

package agent

import "net"

func quiet(conn net.Conn, err error) (net.Conn, error) { return conn, err }
