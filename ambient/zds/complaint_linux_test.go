// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestProxiesDisconnectWhilePodsComeAndGo has proxies connect and disconnect all the time, in the
// midst of requests, while many goroutines set and delete pods: none of them waits for ever, and in
// the end each pod is forgotten. The race detector watches (docs/ambient-complaints.md, E23).
func TestProxiesDisconnectWhilePodsComeAndGo(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{})
	namespace := sandboxtest.NewPod(t).Netns
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var proxies, callers sync.WaitGroup
	for i := range 4 {
		proxies.Go(func() {
			for requests := 50 * i; ctx.Err() == nil; requests = (requests + 37) % 200 {
				answerSome(ctx, t, s.path, requests)
			}
		})
	}
	for i := range 50 {
		callers.Go(func() {
			for round := range 4 {
				uid := fmt.Sprintf("pod-%d-%d", i, round)
				err := s.Set(workload(uid), namespace)
				if err == nil && round%2 == 0 {
					err = s.Await(t.Context(), uid)
				}
				if s.Delete(uid); err == nil {
					err = s.Await(t.Context(), uid)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	end()
	proxies.Wait()
	awaitConnections(s, 0)
	connect(t, s) // its snapshot has no pod
}

// answerSome is a proxy that acknowledges some requests, and then hangs up: often with a request
// that it does not answer.
func answerSome(ctx context.Context, t *testing.T, socket string, requests int) {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Error(err)
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	_, err = conn.Write(Hello{Version: Version1}.Marshal())
	for ; err == nil && requests >= 0; requests-- {
		data := make([]byte, MaxMessage)
		var n int
		if n, _, _, _, err = conn.ReadMsgUnix(data, make([]byte, 128)); err != nil {
			return // the server has ended the connection
		}
		if _, err := ParseRequest(data[:n]); err != nil {
			t.Error(err)
		}
		if requests > 0 {
			_, err = conn.Write([]byte{0x0a, 0})
		}
	}
}
