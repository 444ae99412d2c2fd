// SPDX-License-Identifier: Apache-2.0

// Package talk opens connections between places of nodes made of namespaces, and keeps them open:
// for tests of which connections last through a change.
package talk
