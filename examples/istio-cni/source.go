// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io/fs"

	"github.com/meshcni/meshcni/interception/podsource"
)

// learn asks those who may know the pod: the node agent, then the API server.
func (a *addition) learn(ctx context.Context, c config, ref podsource.Ref) (podsource.Answer, error) {
	answer, err := podsource.Chain{Timeout: c.timeout, Links: []podsource.Link{
		{Name: "agent", Source: podsource.Agent{RunDir: c.RunDir, Backoff: a.Backoff}},
		{Name: "api-server", Source: podsource.APIServer{Kubeconfig: c.Kubeconfig, Timeout: c.timeout, Backoff: a.Backoff}},
	}}.Ask(ctx, ref)
	for _, failure := range answer.Failures {
		level := a.log.Warn
		if errors.Is(failure, fs.ErrNotExist) { // there is no agent with a socket
			level = a.log.Debug
		}
		level("source does not know the pod", "source", failure.Name, "reason", failure.Error())
	}
	return answer, err
}
