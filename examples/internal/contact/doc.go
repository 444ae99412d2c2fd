// SPDX-License-Identifier: Apache-2.0

// Package contact knows how an API server answers: when it last sent something, and which failures
// have occurred since.
//
// A client that retries by itself hides most failures from its caller, and a watch over an open but
// silent connection has none. So [Contact.Wrap] observes the transport: each part of a good answer
// that is read counts. A quiet watch has one about once a minute, if it requests bookmarks, as
// informers do.
//
// Goals: no timer and no goroutine; the age is computed on request, by the monotonic clock.
// Non-goals: retries and deadlines, which are the client's own.
package contact
