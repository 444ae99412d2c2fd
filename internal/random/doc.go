// SPDX-License-Identifier: Apache-2.0

// Package random makes plans, worlds and packets at random, so that whatever answers for a plan can be held against whatever else does.
//
// It is for meshcni's own tests, and has no other use.
package random
