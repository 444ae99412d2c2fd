// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig builds and parses the file with which a node's CNI plugin reaches the API
// server: one cluster, one user with a bearer token, one context. It converts values to bytes and
// back, and has no other effects.
//
//	server, err := kubeconfig.ServerURL(protocol, host, port)
//	file, err := kubeconfig.Build(kubeconfig.Input{
//		Server: server, CA: ca, Token: kubeconfig.NewToken(token), Name: "istio-cni",
//	})
//	file.YAML()   // secret: for a file of mode 0600
//	file.String() // the same for people, without the token
//
//	config, err := kubeconfig.Parse(data)
//	config.Server, config.CA, config.Token
//
// # Goals
//
// client-go and kubectl load what [Build] returns and read exactly the input. Input that they would
// refuse or misread is an error here: a CA that is not a certificate, a server address with
// brackets around an IPv4 address, a token with a line break. [Parse] reads from a file exactly
// what they read, or refuses it. [File.YAML] and [Token.Reveal] show the token; the output of
// package fmt, package log/slog, encoders and errors does not.
//
// # Non-goals
//
// The package reads and writes no files, and rotates nothing. It supports no ways to log in other
// than a token and a client certificate, and no YAML other than what programs write.
package kubeconfig
