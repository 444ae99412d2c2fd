// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"os"
	"strings"
)

// Who answers for names of users in the C library (nsswitch.conf(5), nscd(8)).
const (
	nameServices = "/etc/nsswitch.conf"
	nameCache    = "/var/run/nscd/socket"
)

// asksForNames reports whether anybody but files answers for the names of users and groups on this host.
func asksForNames() bool {
	if _, err := os.Stat(nameCache); err == nil {
		return true
	}
	text, err := os.ReadFile(nameServices)
	return err == nil && beyondFiles(string(text))
}

// beyondFiles reports whether an nsswitch.conf has anything but files for users or groups.
func beyondFiles(text string) bool {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		database, services, found := strings.Cut(strings.TrimSpace(line), ":")
		if !found || database != "passwd" && database != "group" {
			continue
		}
		for service := range strings.FieldsSeq(services) {
			if service != "files" {
				return true
			}
		}
	}
	return false
}
