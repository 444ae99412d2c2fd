// SPDX-License-Identifier: Apache-2.0

package ambientpart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/interception"
)

// manner is how a process serves its socket.
type manner string

const (
	// answering: as node-ambient does. It reports each request about no pod as a request of a
	// plugin.
	answering manner = "answering"
	// stopped: the process stops once it has reported (SIGSTOP).
	stopped manner = "stopped"
	// deaf: the process listens, and takes no connection.
	deaf manner = "deaf"
	// unserved: the socket's file is there, and no process listens.
	unserved manner = "unserved"
)

// play is a process that has a socket and reports lines. It ends with its input.
func play(socket, lines string, as manner) int {
	if err := serveAs(socket, as); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(lines)
	if as == stopped {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // it cannot fail
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // however the input ends
	return 0
}

func serveAs(socket string, as manner) error {
	switch as {
	case answering, stopped:
		server, err := event.Listen(context.Background(), socket, event.Options{Enroller: knowingNothing{}, Keeper: knowingNothing{}})
		if err != nil {
			return err
		}
		go func() { _ = server.Serve(context.Background()) }() // until the process ends
	case deaf, unserved:
		_ = os.Remove(socket) // the former process may have left it
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
		if err != nil {
			return err
		}
		listener.SetUnlinkOnClose(false)
		if as == unserved {
			return listener.Close()
		}
	}
	return nil
}

// knowingNothing is an agent without pods.
type knowingNothing struct{}

var errNothing = errors.New("not asked for")

func (knowingNothing) Enrol(context.Context, event.Pod, *os.File) (interception.Decision, error) {
	return interception.Decision{}, errNothing
}

func (knowingNothing) Pods(_ context.Context, of event.Selection) (event.Node, error) {
	if of == (event.Selection{UID: noPod}) {
		fmt.Println(`{"request":{"status":200}}`)
	}
	return event.Node{Proxy: event.ProxyState{Connection: event.ProxyNeverConnected}, Pods: []event.PodState{}}, nil
}

func (knowingNothing) Withdraw(context.Context, event.Selection, func(event.PodState)) ([]event.PodState, error) {
	return nil, errNothing
}

func (knowingNothing) Readmit(context.Context) error { return errNothing }
