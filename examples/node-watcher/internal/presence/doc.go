// SPDX-License-Identifier: Apache-2.0

// Package presence watches whether one ConfigMap is there, by a reflector of client-go.
//
// Goals: the API server's own word, and as little of it as possible: the watch selects one object by its name, and asks for its metadata
// alone, so that an object that never changes costs a connection and a bookmark a minute. A watch that was opened before a role or a service
// account was deleted tells of the object's end all the same, since the API server checks both when a watch begins. When the watch can't be
// opened again, the last word stays.
//
// Non-goals: what is in the object, and other objects.
package presence
