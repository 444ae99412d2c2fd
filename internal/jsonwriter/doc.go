// SPDX-License-Identifier: Apache-2.0

// Package jsonwriter writes JSON objects member by member.
//
// # Goals
//
// A program that writes an object once, and ends, shouldn't pay for finding out what its types look like: that costs encoding/json ten times
// what the writing does. What is written is to the letter what json.Marshal makes of the same members in the same order.
//
// # Non-goals
//
// Nothing is read here. Who forgets a member, or writes one twice, isn't told: types that are written here have tags of encoding/json, too,
// by which they are read, and a test that compares both forms.
package jsonwriter
