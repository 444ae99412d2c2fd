// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig makes the file with which a node's CNI plugin reaches the API server: one cluster, one user with a bearer token, one
// context. It goes from values to bytes and touches nothing else.
//
//	server, err := kubeconfig.ServerURL(protocol, host, port)
//	file, err := kubeconfig.Build(kubeconfig.Input{Server: server, CA: ca, Token: kubeconfig.NewToken(token), Name: "istio-cni"})
//	file.YAML()   // secret: for a file of mode 0600
//	file.String() // the same for people, without the token
//
// # Goals
//
// Client-go and kubectl load the result and see exactly the input. What they would refuse, or understand otherwise than it was meant,
// is an error here: a CA that is no certificate, a server address with brackets around an IPv4 address, a token with a line break. The
// token shows in [File.YAML] and [Token.Reveal], and not in what package fmt, package log/slog, encoders and errors make of the values.
//
// # Non-goals
//
// The package reads no files, writes none and rotates nothing. It does not load kubeconfigs, and has no other kinds of credentials.
package kubeconfig
