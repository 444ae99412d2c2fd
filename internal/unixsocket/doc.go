// SPDX-License-Identifier: Apache-2.0

// Package unixsocket makes unix sockets that only root and the process's own user can use, and
// checks who is at the other end of a connection.
package unixsocket
