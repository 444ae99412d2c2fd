// SPDX-License-Identifier: Apache-2.0

// Package tallytest has a dataplane that lets tests of the agents see what they count.
package tallytest
