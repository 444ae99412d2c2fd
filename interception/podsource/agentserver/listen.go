// SPDX-License-Identifier: Apache-2.0

package agentserver

import (
	"context"
	"net"
	"path/filepath"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/spool"
	"github.com/meshcni/meshcni/internal/unixsocket"
)

// Listen makes the socket [podsource.AgentSocket] in the agent's run directory, and listens there,
// for [Server]. Only its owner may connect (mode 0600), from the first instant.
//
// The directory must exist, belong to root or to this process's user, and be writable by no other
// user. A socket that is there already is replaced, with no instant in which there is none: an
// earlier agent left it, or still listens there and is being replaced. Anything else of that name
// stays, and is an error; a symbolic link is never followed. Closing the listener leaves the file,
// which may be a later agent's by then. Listen needs Linux.
func Listen(ctx context.Context, runDir string) (net.Listener, error) {
	return unixsocket.Listen(ctx, "unix", filepath.Join(runDir, podsource.AgentSocket))
}

// ListenIstioLog makes the socket log.sock, where Istio's node agent takes log lines, for
// [IstioLogServer], in the same way.
func ListenIstioLog(ctx context.Context, runDir string) (net.Listener, error) {
	return unixsocket.Listen(ctx, "unix", filepath.Join(runDir, spool.IstioLogSocket))
}
