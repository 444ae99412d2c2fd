// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// portsOf returns the UDP ports that sockets of a namespace have, those of its tunnels among them
// (proc_pid_net(5)).
func portsOf(in *interception.Netns) (ports []interception.Port, err error) {
	err = namespace.Run(in.File(), func() error {
		for _, name := range []string{"udp", "udp6"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + name)
			if errors.Is(err, fs.ErrNotExist) { // the kernel is without IPv6
				continue
			}
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(text)) {
				if port, is := portOf(line); is {
					ports = append(ports, port)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the UDP sockets of %s: %w", in, err)
	}
	return ports, nil
}

// portOf returns the port of a line's local address, which is in hexadecimal digits.
func portOf(line string) (interception.Port, bool) {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return 0, false
	}
	_, digits, is := strings.Cut(fields[1], ":")
	port, err := strconv.ParseUint(digits, 16, 16)
	return interception.Port(port), is && err == nil
}
