// SPDX-License-Identifier: Apache-2.0

// Package contact knows how an API server answers: when it last said something, and what has kept it from answering since.
//
// A client that retries by itself tells its caller nothing of most failures, and a watch over a connection that is up and silent has none. So
// [Contact.Wrap] looks at the transport: what counts is each piece of a good answer that is read. A quiet watch has one about once a minute, if
// it asks for bookmarks, as informers do.
//
// Goals: no timer and no goroutine; the age is worked out when somebody asks, by the monotonic clock. Non-goals: retries and deadlines, which
// are the client's own affair.
package contact
