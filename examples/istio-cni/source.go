// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io/fs"

	"github.com/meshcni/meshcni/interception/podsource"
)

// sourceAgent is the agent's name in logs and results.
const sourceAgent = "agent"

// learn asks those who may know the pod: the node agent, then the API server.
func (c *call) learn(ctx context.Context, conf config, ref podsource.Ref) (podsource.Answer, error) {
	defer c.stage("source")()
	answer, err := podsource.Chain{Timeout: conf.Timeout.Duration(), Links: []podsource.Link{
		{Name: sourceAgent, Source: podsource.Agent{RunDir: conf.RunDir, Backoff: c.Backoff}},
		{Name: "api-server", Source: podsource.APIServer{Kubeconfig: conf.Kubeconfig, Timeout: conf.Timeout.Duration(), Backoff: c.Backoff}},
	}}.Ask(ctx, ref)
	for _, failure := range answer.Failures {
		level := c.log.Warn
		if errors.Is(failure, fs.ErrNotExist) || errors.Is(failure, podsource.ErrProtocol) { // there is no agent with a socket, or that has pods
			level = c.log.Debug
		}
		level("source does not know the pod", "source", failure.Name, "reason", failure.Error())
	}
	c.agent = agentStateOf(answer, err)
	return answer, err
}

// agentStateOf tells from what the sources said whether the agent answers.
func agentStateOf(answer podsource.Answer, err error) agentState {
	failures := answer.Failures
	if all := (*podsource.ChainError)(nil); errors.As(err, &all) {
		failures = all.Failures
	}
	if len(failures) == 0 || failures[0].Name != sourceAgent {
		return agentThere // it is the first that is asked
	}
	switch failure := failures[0].Err; {
	case errors.Is(failure, fs.ErrNotExist):
		return agentAbsent
	case errors.Is(failure, podsource.ErrNotFound), errors.Is(failure, podsource.ErrStalePod), errors.Is(failure, podsource.ErrProtocol),
		errors.Is(failure, podsource.ErrServer), errors.Is(failure, podsource.ErrNotReady):
		return agentThere
	default:
		return agentFailed
	}
}
