// SPDX-License-Identifier: Apache-2.0

package bareproxy

import (
	"net"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// Listen opens the proxy's TCP listeners in a namespace until the test ends.
func Listen(t testing.TB, in *os.File, n ambient.Numbers) {
	t.Helper()
	for _, port := range []interception.Port{n.OutboundPort, n.InboundPort, n.TunnelPort} {
		var listener net.Listener
		err := namespace.Run(in, func() (err error) {
			listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", ":"+strconv.Itoa(int(port)))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() }) // nothing was written
	}
}

// Acknowledge connects to the agent's socket, and acknowledges every request until the test ends.
func Acknowledge(t testing.TB, socket string) {
	t.Helper()
	agent, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err == nil {
		_, err = agent.Write(zds.Hello{Version: zds.Version1}.Marshal())
	}
	ack, err2 := zds.Ack{}.Marshal()
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	t.Cleanup(func() { _ = agent.Close() }) // it ends the reads
	go func() {
		data, control := make([]byte, zds.MaxMessage), make([]byte, unix.CmsgSpace(16))
		for {
			_, length, _, _, err := agent.ReadMsgUnix(data, control)
			if err != nil {
				return
			}
			closeAll(control[:length])
			if _, err := agent.Write(ack); err != nil {
				return
			}
		}
	}()
}

// closeAll closes the descriptors that a control message carries.
func closeAll(control []byte) {
	messages, _ := unix.ParseSocketControlMessage(control) // the kernel's are whole
	for i := range messages {
		files, _ := unix.ParseUnixRights(&messages[i]) // likewise
		for _, file := range files {
			_ = unix.Close(file) // nothing was written
		}
	}
}
