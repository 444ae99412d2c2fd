// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
	"github.com/meshcni/meshcni/internal/spool"
)

// socket is one of the agent's two.
type socket struct {
	part, name string
	listen     func(ctx context.Context, runDir string) (net.Listener, error)
}

func agentSocket() socket { return socket{socketPart, podsource.AgentSocket, agentserver.Listen} }

func istioLogSocket() socket {
	return socket{istioLogPart, spool.IstioLogSocket, agentserver.ListenIstioLog}
}

func sockets() []socket { return []socket{agentSocket(), istioLogSocket()} }

// Bounds of an answer, of whoever listens: a plugin would give up later.
const (
	answerWithin = 500 * time.Millisecond
	maxAnswer    = 64 << 10
)

// check makes the round trip that a plugin makes, and listens again where another attempt would fare no better.
func (a *Agent) check(s socket) func(context.Context) (reason string) {
	return func(ctx context.Context) string {
		reason, lost := a.look(ctx, s)
		if lost {
			a.Restart(s.part, reason)
		}
		return reason
	}
}

// takeSockets listens again at each socket that this agent doesn't answer at: a daemon that has just left had put its own there.
func (a *Agent) takeSockets(ctx context.Context) {
	for _, s := range sockets() {
		within, cancel := context.WithTimeout(ctx, answerWithin)
		reason, _ := a.look(within, s)
		if cancel(); reason != "" {
			a.Restart(s.part, reason)
		}
	}
}

// look says why plugins are not answered at a socket where they should be by this agent, and whether the socket is lost: another program
// has put its own there, or none listens. While a newer daemon keeps the node that one answers, and all is well.
func (a *Agent) look(ctx context.Context, s socket) (reason string, lost bool) {
	if _, listens := a.listening.Load(s.part); !listens {
		return "", false // the part says why
	}
	instance, err := a.ask(ctx, s)
	switch {
	case err == nil && (instance == a.Instance || !a.Keeps()):
		return "", false
	case err == nil:
		return "another program answers at " + s.name, true
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nobody answers at %s: %v", s.name, err), true
	}
	return fmt.Sprintf("no answer at %s: %v", s.name, err), false
}

// ask returns which agent answers at the socket; it is empty for one that doesn't say. The path is none that an agent has, and so is
// counted by none.
func (a *Agent) ask(ctx context.Context, s socket) (instance string, err error) {
	transport := http.Transport{
		DisableKeepAlives: true, MaxResponseHeaderBytes: maxAnswer,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(a.RunDir, s.name))
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/", http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // it is not read
	return response.Header.Get(agentserver.InstanceHeader), nil
}
