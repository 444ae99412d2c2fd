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

// Bounds on an answer, since another program may be listening. A plugin would wait longer.
const (
	answerWithin = 500 * time.Millisecond
	maxAnswer    = 64 << 10
)

// check makes the round trip that a plugin makes, and listens again if another attempt would not
// help.
func (a *Agent) check(s socket) func(context.Context) (reason string) {
	return func(ctx context.Context) string {
		reason, lost := a.look(ctx, s)
		if lost {
			a.Restart(s.part, reason)
		}
		return reason
	}
}

// takeSockets listens again at each socket where this agent does not answer: a daemon that has just
// ended had replaced it.
func (a *Agent) takeSockets(ctx context.Context) {
	for _, s := range sockets() {
		within, cancel := context.WithTimeout(ctx, answerWithin)
		reason, _ := a.look(within, s)
		if cancel(); reason != "" {
			a.Restart(s.part, reason)
		}
	}
}

// look returns why this agent does not answer plugins at a socket where it should, and whether the
// socket is lost: another program has replaced it, or no program listens. While a newer daemon
// keeps the node, its agent answers, and that is right.
func (a *Agent) look(ctx context.Context, s socket) (reason string, lost bool) {
	if _, listens := a.listening.Load(s.part); !listens {
		return "", false // the part has the reason
	}
	instance, err := a.ask(ctx, s)
	switch {
	case err == nil && (instance == a.Instance || !a.Keeps()):
		return "", false
	case err == nil:
		return "another program answers at " + s.name, true
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("no program answers at %s: %v", s.name, err), true
	}
	return fmt.Sprintf("no answer at %s: %v", s.name, err), false
}

// ask returns which agent answers at the socket; empty if the answer does not include it. No agent
// serves the path, so no agent counts the request.
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
	defer response.Body.Close() //nolint:errcheck // the body is not read
	return response.Header.Get(agentserver.InstanceHeader), nil
}
