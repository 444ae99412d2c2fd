// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/testing/talk"
)

// TestProxyHangs has a proxy that takes connections and never answers, and one whose listeners take
// none: the status says that the proxy has its listeners, which is all that the kernel tells.
// Withdrawal waits for the captured connections no longer than it is told to, and leaves nothing.
func TestProxyHangs(t *testing.T) {
	t.Parallel()
	for name, accepts := range map[string]bool{"it takes connections": true, "its listeners take none": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, backends(t)["nftables"])
			n.options.DrainTimeout = 300 * time.Millisecond
			web, proxyPod := n.pod(), n.silentProxy(families...)
			talk.Echo(t, n.remote)
			hang(t, n.places[proxyPod.UID], accepts)
			before := n.dump()
			a, _ := n.run()
			n.feed <- told(proxyPod, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			n.await("that the proxy has its listeners", func() bool {
				status := a.Status(web.UID)
				return status.Proxy.Connections == 1 && status.Pods[0].Seen.Proxy == ambient.ProxyServes
			})
			for _, to := range n.remote.Addresses {
				conn := talk.Call(t, n.places[web.UID], to)
				if _, err := conn.Write([]byte("?")); err != nil {
					t.Error(err)
				}
				if err := conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
					t.Error(err)
				}
				if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s: %v, want that nothing answers", to, err)
				}
			}
			if err := a.Withdraw(t.Context(), func(agent.Pod) {}); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(before, n.dump()); diff != "" || n.hasRules(proxyPod) {
				t.Errorf("the host (-before +after):\n%s", diff)
			}
			n.wantWay(web, nil, direct)
			n.wantStatuses(web, ambient.StatusEnabled, ambient.NoStatus)
		})
	}
}

// hang listens as a proxy does, to the end of the test.
func hang(t *testing.T, place *nodes.Place, accepts bool) {
	t.Helper()
	config := net.ListenConfig{Control: func(network, _ string, conn syscall.RawConn) (err error) {
		level, option := unix.IPPROTO_IP, unix.IP_TRANSPARENT
		if network == "tcp6" {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT
		}
		return errors.Join(conn.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }), err)
	}}
	for _, port := range []int{15001, 15006, 15008} {
		for _, network := range []string{"tcp4", "tcp6"} {
			var listener net.Listener
			if err := namespace.Run(place.Netns.File(), func() (err error) {
				listener, err = config.Listen(t.Context(), network, net.JoinHostPort("", strconv.Itoa(port)))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = listener.Close() })
			if accepts {
				go func() {
					for {
						conn, err := listener.Accept()
						if err != nil {
							return
						}
						context.AfterFunc(t.Context(), func() { _ = conn.Close() })
					}
				}()
			}
		}
	}
}
