// SPDX-License-Identifier: Apache-2.0

package plugin

import "time"

// limits are how long the plugin waits for answers. The setting timeout bounds all questions of an ADD together.
type limits struct {
	// Agent and AgentRequest are for what the node agent is asked about a pod, in all and each time; podsource's when 0.
	Agent, AgentRequest time.Duration
	// ServerRequest is for each request to the API server about a pod; podsource's when 0.
	ServerRequest time.Duration
	// StatusAgent and StatusServer are for STATUS: runtimes ask all the time, and wait for the answer.
	StatusAgent, StatusServer time.Duration
	// Tell is for all that the node agent is told when a call is through.
	Tell time.Duration
}

// usualLimits are those of production.
func usualLimits() limits {
	return limits{StatusAgent: 2 * time.Second, StatusServer: 3 * time.Second, Tell: 250 * time.Millisecond}
}
