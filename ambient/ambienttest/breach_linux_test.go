// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"bytes"
	"encoding/hex"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// The messages of an agent, as the protocol has them.
const (
	addMessage      = "0a0e0a01611209" + "0a016e" + "120173" + "1a0161"
	delMessage      = "1203120161"
	keepMessage     = "2a030a0161"
	snapshotMessage = "1a00"
)

// TestBreaches has an agent that breaks the protocol. The proxy reports that, and keeps none of the
// descriptors that it was sent.
func TestBreaches(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		messages    []string // in hexadecimal; all but the last one are answered
		descriptors int      // that come with the last one
		want        string
	}{
		"del with a descriptor":      {[]string{snapshotMessage, delMessage}, 1, "1 descriptors with del"},
		"keep with a descriptor":     {[]string{keepMessage}, 1, "1 descriptors with keep"},
		"add without a descriptor":   {[]string{addMessage}, 0, "0 descriptors with add"},
		"add with two descriptors":   {[]string{addMessage}, 2, "2 descriptors with add"},
		"add without names":          {[]string{"0a030a0161"}, 1, "without the pod's names"},
		"keep after the snapshot":    {[]string{snapshotMessage, keepMessage}, 0, "keep, and its snapshot was complete: true"},
		"the snapshot twice":         {[]string{snapshotMessage, snapshotMessage}, 0, "snapshot sent, and its snapshot was complete: true"},
		"a request that is not one":  {[]string{"2200"}, 0, zds.ErrMessage.Error()},
		"a message that is too long": {[]string{snapshotMessage + strings.Repeat("00", zds.MaxMessage)}, 0, zds.ErrMessage.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := newSocket(t)
			listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			proxy, err := StartProxy(ProxyOptions{Socket: socket, Numbers: ambient.IstioNumbers()})
			if err != nil {
				t.Fatal(err)
			}
			pod, namespace := newPod(t)
			before := sandboxtest.Descriptors(t, pod.Path())
			breach(t, listener, test.messages, slices.Repeat([]*os.File{namespace.File()}, test.descriptors))
			if err := proxy.Close(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the proxy says %v, want %q", err, test.want)
			}
			if open := sandboxtest.Descriptors(t, pod.Path()); open != before {
				t.Errorf("%d descriptors of the namespace are open, want %d", open, before)
			}
		})
	}
}

// breach accepts a proxy, sends it messages, and waits until it hangs up.
func breach(t *testing.T, listener *net.UnixListener, messages []string, files []*os.File) {
	t.Helper()
	conn, err := listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer := make([]byte, zds.MaxMessage)
	if n, err := conn.Read(answer); err != nil || !bytes.Equal(answer[:n], zds.Hello{Version: zds.Version1}.Marshal()) {
		t.Fatalf("hello %x, %v", answer[:n], err)
	}
	for i, text := range messages {
		data, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		var rights []byte
		if last := i == len(messages)-1; last && len(files) > 0 {
			var descriptors []int
			for _, file := range files {
				descriptors = append(descriptors, int(file.Fd()))
			}
			rights = unix.UnixRights(descriptors...)
		}
		if _, _, err := conn.WriteMsgUnix(data, rights, nil); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(answer)
		if hungUp := err != nil || n == 0; hungUp != (i == len(messages)-1) {
			t.Fatalf("message %d of %d is answered with %x, %v", i+1, len(messages), answer[:n], err)
		}
	}
}
