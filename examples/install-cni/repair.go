// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/examples/internal/repairconf"
)

// shortfalls is the part that reports what keeps repair from doing what the settings ask for: a
// mount, a capability or a verb of the role that the daemon lacks. Meanwhile the node-watcher does
// all the rest, and the node is ready.
func shortfalls(s settings.Settings, log *slog.Logger, pods *podWatch) parts.Part {
	status, news := func() *repairconf.Status { return nil }, make(chan struct{})
	if pods != nil {
		status, news = pods.Repair, pods.news
	}
	return parts.Part{Name: "repair", Auxiliary: true, Run: func(ctx context.Context, say func(string)) error {
		said := ""
		for {
			reason := strings.Join(append(mountShortfalls(s), refusals(status())...), "; ")
			if reason != "" && reason != said {
				log.Warn("repair does less than the settings ask for", "reason", reason)
			}
			said = reason
			say(reason)
			select {
			case <-ctx.Done():
				return nil
			case <-news:
			}
		}
	}}
}

// mountShortfalls returns those that only a change of the daemon's manifest can fix.
func mountShortfalls(s settings.Settings) []string {
	repair := s.Repair
	if !repair.WantsInPlace() {
		return nil
	}
	const instead = "; until then such pods are reported, and dealt with as the other settings of repair say"
	switch path := repair.ProcDir; {
	case s.NodeName == "":
		return []string{"pods are to be repaired in place, but the node's name is unknown: set node-name"}
	case path == "":
		return []string{"pods can't be repaired in place, because mounted-proc-dir is empty: mount the node's /proc, and name it there" + instead}
	case !isProc(path):
		return []string{fmt.Sprintf("pods can't be repaired in place, because %s doesn't show the node's processes: mount the node's /proc there, "+
			"or set mounted-proc-dir to where it is%s", path, instead)}
	default:
		if _, err := os.Readlink(filepath.Join(path, "1/ns/net")); err != nil {
			return []string{fmt.Sprintf("pods can't be repaired in place: %v; give the container the capabilities SYS_PTRACE, SYS_ADMIN and NET_ADMIN, "+
				"and on a node with AppArmor the profile Unconfined%s", err, instead)}
		}
		return nil
	}
}

// isProc reports whether a directory is a proc file system that shows process 1.
func isProc(path string) bool {
	_, err := os.Stat(filepath.Join(path, "1/cgroup"))
	return err == nil
}

// refusals returns what the API server refused because the role lacks a verb.
func refusals(status *repairconf.Status) []string {
	var all []string
	if status != nil {
		for _, what := range slices.Sorted(maps.Keys(status.Forbidden)) {
			all = append(all, fmt.Sprintf("%s: %s; give the service account a role that allows it, or leave the setting out",
				what, status.Forbidden[what]))
		}
	}
	return all
}
