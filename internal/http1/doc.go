// SPDX-License-Identifier: Apache-2.0

// Package http1 makes one request of HTTP/1.1 (RFC 9112) on one connection, and reads the answer to it as a whole.
//
// # Goals
//
// A program that makes a request or two in its life shouldn't carry net/http with it: that is code and tables, most of them for
// HTTP/2, servers, cookies and connections that are kept. All that an answer may have is bounded, in size and by the context in time, and what
// is no HTTP is an error that says which part of it.
//
// # Non-goals
//
// Connections are neither made nor kept here; nothing is redirected, compressed, authenticated or tried again. The fields of an answer's
// header are read and checked, but only those that say where the body ends are of use: no others are handed over.
package http1
