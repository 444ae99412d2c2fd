// SPDX-License-Identifier: Apache-2.0

// Package feed brings the pods of a node from the process that talks to the API server to the
// process of the agent, and the pods' status annotations back:
//
//	node-watcher                           node-ambient
//	Source    --Next----> Server ---------> Client --Next-----> agent.Agent
//	Annotator <-Annotate--       <---------        <-Annotate--
//
// The two processes talk over a unix socket, by the protocol of docs/ambient-feed.md. A [Server]
// serves several agents at once, because a rolling update has two. A [Client] connects again by
// itself, so that either process can be replaced at any time: the agent waits, keeps what it knows,
// and learns what has changed meanwhile.
//
// # Goals
//
// No change is lost and nothing is taken for gone too early. A pod that a source does not name any
// more is gone when that source has told of all pods, and not before. An annotation is asked for
// until the source has confirmed it.
//
// Memory is bounded by the pods of the node. There are no queues: the server compares what its
// source has told with what each agent was told, and the client keeps the latest news of each pod.
// Neither side does anything while nothing changes.
//
// The messages are pure, and parse on every system. The socket needs Linux.
//
// # Non-goals
//
// The package knows neither Kubernetes nor a client of it. It does not decide which pods are
// enrolled. A source that hangs, and goes on to hold its connections, is not noticed.
package feed
