// SPDX-License-Identifier: Apache-2.0

// Package tallytest has a dataplane that lets tests see what the agents count.
package tallytest
