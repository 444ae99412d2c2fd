// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
)

// sourceAgent is the agent's name in logs and results.
const sourceAgent = "agent"

// While the node agent is being replaced, the plugin asks all sources again, at most this often and
// after this pause. It takes a few seconds until the next agent listens.
const (
	replacementRounds = 8
	replacementPause  = time.Second
)

// learn asks the sources for the pod: the node agent, then the API server.
func (c *call) learn(ctx context.Context, conf *config, ref podsource.Ref) (podsource.Answer, error) {
	defer c.stage("source")()
	answer, err := c.ask(ctx, conf, ref)
	for round := 1; round <= replacementRounds && isReplaced(err) && c.pause(ctx, round); round++ {
		answer, err = c.ask(ctx, conf, ref)
	}
	for _, failure := range answer.Failures {
		level := c.log.Warn
		if errors.Is(failure, fs.ErrNotExist) || errors.Is(failure, podsource.ErrProtocol) { // the agent has no socket, or serves no pods
			level = c.log.Debug
		}
		level("source does not know the pod", "source", failure.Name, "reason", failure.Error())
	}
	c.agent = agentStateOf(answer, err)
	return answer, err
}

// isReplaced reports whether the node agent is away for a moment: its socket is there but no
// program listens, and the API server refuses the token that the agent left, because the pod that
// it is bound to is gone.
func isReplaced(err error) bool {
	var all *podsource.ChainError
	if !errors.As(err, &all) || len(all.Failures) < 2 {
		return false
	}
	agent, server := all.Failures[0].Err, all.Failures[1].Err
	return errors.Is(agent, syscall.ECONNREFUSED) && errors.Is(server, podsource.ErrUnauthorized)
}

// pause waits before another round, and reports whether there is time for one.
func (c *call) pause(ctx context.Context, round int) bool {
	pause := replacementPause
	if c.Backoff != nil {
		pause = c.Backoff(round)
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return ctx.Err() == nil
	}
}

// ask asks the sources in order, until one knows the pod.
func (c *call) ask(ctx context.Context, conf *config, ref podsource.Ref) (podsource.Answer, error) {
	agent := podsource.Agent{
		RunDir: conf.RunDir, Timeout: c.Limits.Agent, CallTimeout: c.Limits.AgentRequest, Backoff: c.Backoff, Kept: &c.connection,
	}
	server := podsource.APIServer{
		Kubeconfig: conf.Kubeconfig, UserAgent: c.UserAgent,
		Timeout: conf.Timeout.Duration(), CallTimeout: c.Limits.ServerRequest, Backoff: c.Backoff,
	}
	return podsource.Chain{Timeout: conf.Timeout.Duration(), Links: []podsource.Link{
		{Name: sourceAgent, Source: agent}, {Name: "api-server", Source: server},
	}}.Ask(ctx, ref)
}

// agentStateOf tells from the sources' failures whether the agent answers.
func agentStateOf(answer podsource.Answer, err error) agentState {
	failures := answer.Failures
	if all := (*podsource.ChainError)(nil); errors.As(err, &all) {
		failures = all.Failures
	}
	if len(failures) == 0 || failures[0].Name != sourceAgent {
		return agentThere // the first source that is asked
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
