// SPDX-License-Identifier: Apache-2.0

// Package handover is what one dataplane must know of another whose rules it replaces in a network
// namespace: package nftables of package iptables, and the other way round.
//
// # Goals
//
// The dataplanes know each other by two methods only, and neither imports the other.
//
// # Non-goals
//
// In which order rules change hands is for each dataplane to say.
package handover
