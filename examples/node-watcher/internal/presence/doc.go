// SPDX-License-Identifier: Apache-2.0

// Package presence watches whether one ConfigMap exists, with a reflector of client-go.
//
// Goals: first-hand knowledge from the API server, and as little data as possible. The watch
// selects one object by its name, and requests only its metadata, so that an object that never
// changes costs a connection and a bookmark a minute. A watch that was opened before a role or a
// service account was deleted still reports the object's end, since the API server checks both only
// when a watch begins. If the watch cannot be opened again, the last report stays.
//
// Non-goals: the content of the object, and other objects.
package presence
