// SPDX-License-Identifier: Apache-2.0

// Package handover defines what one dataplane has to know of another whose rules it replaces in a
// network namespace: package nftables of package iptables, and the other way round.
//
// # Goals
//
// The dataplanes know each other by two methods only, and neither imports the other.
//
// # Non-goals
//
// Each dataplane decides itself in which order rules change hands.
package handover
