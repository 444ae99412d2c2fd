// SPDX-License-Identifier: Apache-2.0

// Command stand-in-proxy stands in for Istio's ztunnel where tests take a proxy as a command or as
// a DaemonSet. It runs the proxy of package ambient/ambienttest, takes the environment that ztunnel
// takes, and its command lines (proxy, version, help). It can be told to misbehave.
//
// Goals: what starts ztunnel starts it, unchanged; a setting of ztunnel's that it cannot follow is
// an error that names it; lines on standard error say which pods it serves. Non-goals: TLS, policy,
// names of services, a control plane other than a document in JSON. It is no proxy for production.
package main
