// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Runner starts programs. A custom one may start them elsewhere, count them, or refuse to.
type Runner interface {
	// Run starts the program in the command's network namespace, waits for its end, and returns
	// what it wrote. When ctx ends, it ends the program. The error is how the program failed, or
	// why it could not be started; for a missing program it is exec.ErrNotFound or fs.ErrNotExist.
	Run(ctx context.Context, c Command) (Output, error)
}

// Command is a program to run. It must not pass through a shell.
type Command struct {
	// Args are the program's name or path, and its arguments.
	Args []string
	// Env is the whole environment, each entry a name, "=" and a value.
	Env []string
	// Stdin is what the program reads.
	Stdin []byte
	// Namespace is the network namespace that the program runs in.
	Namespace *os.File
	// Files are open in the program as the descriptors from 3 on.
	Files []*os.File
	// LocalNames means that only files of the host answer the program's lookups of users and
	// groups. iptables looks up each number as if it was a name, and with a directory service a
	// plan then takes as long as the service's timeout.
	LocalNames bool
}

// Output is what a program wrote.
type Output struct {
	Stdout, Stderr []byte
}

type tool struct {
	flavour Flavour
	family  interception.Family
}

// everyTool returns all tools, those of one flavour first.
func everyTool(first Flavour) []tool {
	flavours := []Flavour{NFT, Legacy}
	if first == Legacy {
		flavours = []Flavour{Legacy, NFT}
	}
	var all []tool
	for _, flavour := range flavours {
		for _, family := range families() {
			all = append(all, tool{flavour, family})
		}
	}
	return all
}

// The programs of a tool, by the end of their names.
const (
	restoreProgram = "restore"
	saveProgram    = "save"
)

// name returns the usual name of one of the tool's programs.
func (t tool) name(program string) string {
	name := "iptables"
	if t.family == interception.IPv6 {
		name = "ip6tables"
	}
	return name + "-" + string(t.flavour) + "-" + program
}

// programNames returns the usual names of all programs, sorted.
func programNames() []string {
	var names []string
	for _, t := range everyTool(NFT) {
		names = append(names, t.name(restoreProgram), t.name(saveProgram))
	}
	slices.Sort(names)
	return names
}

// The sources of user names in the C library (nsswitch.conf(5), nscd(8)).
const (
	nameServices = "/etc/nsswitch.conf"
	nameCache    = "/var/run/nscd/socket"
)

// asksForNames reports whether anything but files answers lookups of users and groups on this host.
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
