// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/meshcni/meshcni/interception"
)

// Enrol hands the agent at a socket the open namespace of a new pod, and waits until the pod is as
// wanted. It returns the agent's decision: a pod that is not captured is not the agent's. The
// caller still owns the namespace.
//
// The context should have a deadline: the agent is asked to answer a tenth of the time before it.
// The error is an [*Error] that the agent has reported, a [*unixsocket.PeerError] if the socket is
// another user's, the cause of a context that has ended, or that of the connection: fs.ErrNotExist
// and ECONNREFUSED mean that no agent is there, and io.ErrUnexpectedEOF that it ended meanwhile.
func Enrol(ctx context.Context, socket string, pod Pod, namespace *os.File) (interception.Decision, error) {
	decision, err := enrol(ctx, socket, pod, namespace)
	if err != nil {
		return decision, fmt.Errorf("ask the agent at %s about pod %s: %w", socket, pod, err)
	}
	return decision, nil
}

func enrol(ctx context.Context, socket string, pod Pod, namespace *os.File) (interception.Decision, error) {
	body, err := encodeRequest(ctx, pod)
	if err != nil {
		return interception.Decision{}, err
	}
	var decision interception.Decision
	err = exchange(ctx, socket, http.MethodPost, "/v1/enrol", body, namespace, func(status int, answer io.Reader) error {
		body, err := readAll(answer)
		if err == nil {
			decision, err = parseAnswer(status, body)
		}
		return err
	})
	return decision, err
}
