// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// leftPartName is the part that reports pods that are captured while ambient mode is off.
const leftPartName = "ambient-left"

// lookForLeftEvery is how often it looks for them by itself. A request for the node's readiness
// has it look at once.
const lookForLeftEvery = time.Minute

// left is what ambient mode has on the node, as its files show. They are in the run directory, and
// so end with the node's boot, as the rules do.
type left struct {
	inPods int    // pods that are captured in their own namespaces; each has a record
	onNode string // the file about the node's proxies; empty unless the node's namespace captures pods
}

// agentRecords is the directory of node-ambient's records.
func agentRecords(s settings.Settings) string { return filepath.Join(s.RunDir, "ambient") }

// lookForLeft reads what ambient mode has on the node. It needs no privilege.
func lookForLeft(s settings.Settings) (found left, err error) {
	recorded, err := journal.Journal{Directory: agentRecords(s)}.Attachments()
	if err != nil {
		return left{}, fmt.Errorf("see whether pods are still captured in ambient mode: %w", err)
	}
	found.inPods = len(living(s, recorded))
	file := ambientconf.NodeState(agentRecords(s))
	switch _, err := os.Lstat(file); {
	case err == nil:
		found.onNode = file
	case !errors.Is(err, fs.ErrNotExist):
		return left{}, fmt.Errorf("see whether the node still captures pods in ambient mode: %w", err)
	}
	return found, nil
}

// maxCacheEntry bounds what is read of an entry of libcni's cache.
const maxCacheEntry = 4 << 20

// living returns the records of pods that have not ended. No agent removes the record of a pod that
// ends while ambient mode is off, but the container runtime removes it from libcni's cache. A cache
// that cannot be read, or names no pod by its UID, tells nothing: then all records count.
func living(s settings.Settings, recorded []journal.Attachment) []journal.Attachment {
	results := filesystem.Directory{Path: filepath.Join(s.CacheDir, "results")}
	entries, err := os.ReadDir(results.Path)
	if err != nil || len(recorded) == 0 {
		return recorded
	}
	var names bool // a pod by its UID
	cached := map[string]bool{}
	for _, entry := range entries {
		text, err := results.Read(entry.Name(), maxCacheEntry)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its pod has ended just now
		} else if err != nil {
			return recorded
		}
		names = names || bytes.Contains(text, []byte("K8S_POD_UID"))
		for _, one := range recorded { // the agent's records have the pod's UID as the container
			cached[one.ContainerID] = cached[one.ContainerID] || bytes.Contains(text, []byte(one.ContainerID))
		}
	}
	if !names {
		return recorded
	}
	return slices.DeleteFunc(slices.Clone(recorded), func(one journal.Attachment) bool { return !cached[one.ContainerID] })
}

// String says which pods are captured; it is empty if none is.
func (l left) String() string {
	var all []string
	if l.inPods > 0 {
		all = append(all, fmt.Sprintf("pods still captured in their own namespaces: %d", l.inPods))
	}
	if l.onNode != "" {
		all = append(all, l.onNode+` exists: the node's namespace still captures pods ("install-cni ambient status --host" lists them)`)
	}
	return strings.Join(all, "; ")
}

// leftReason returns why a node without ambient mode is not as it should be; empty if nothing is
// left of ambient mode.
func leftReason(s settings.Settings) string {
	found, err := lookForLeft(s)
	switch {
	case err != nil:
		return err.Error()
	case found == left{}:
		return ""
	}
	return found.String() + `; ambient mode is off, so that nothing keeps or releases them: ` +
		`turn ambient-enabled on again, run "install-cni ambient withdraw --all" on this node, and turn it off then`
}

// leftCaptured is the part that reports pods that an earlier daemon has left in the mesh. The node
// is ready meanwhile: other pods need no ambient mode.
func leftCaptured(s settings.Settings, log *slog.Logger) parts.Part {
	check := func(context.Context) string { return leftReason(s) }
	return parts.Part{Name: leftPartName, Auxiliary: true, Check: check, Run: func(ctx context.Context, say func(string)) error {
		ticker := time.NewTicker(lookForLeftEvery)
		defer ticker.Stop()
		said := ""
		for {
			reason := leftReason(s)
			if reason != "" && reason != said {
				log.Warn("ambient mode is off, and has left pods captured", "reason", reason)
			}
			said = reason
			say("") // what is left is the check's, so that it is never out of date
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
		}
	}}
}

// errCaptured means that an uninstall has left pods in the mesh.
var errCaptured = errors.New("pods are still in the mesh")

// stayCaptured says what becomes of pods that are in the mesh when no daemon takes them out.
func (l left) stayCaptured() string {
	var all []string
	if l.inPods > 0 {
		all = append(all, "restart the pods that are captured in their own namespaces")
	}
	if l.onNode != "" {
		all = append(all, "the node's rules, sets and links stay until the node is rebooted, or a daemon with ambient-enabled "+
			`runs here and "install-cni ambient withdraw --all" is run`)
	}
	return l.String() + ": " + strings.Join(all, "; ")
}

// reportLeft adds a failed step to an uninstall without a daemon if pods are left in the mesh:
// nothing else takes them out.
func reportLeft(s settings.Settings, progress func(installer.Step)) error {
	found, err := lookForLeft(s)
	if err == nil && found != (left{}) {
		err = fmt.Errorf("%w: %s", errCaptured, found.stayCaptured())
	}
	if err != nil {
		progress(installer.Step{Name: "ambient", Outcome: installer.Failed, Detail: err.Error()})
	}
	return err
}

// wouldLeave returns a step of a dry run if pods are in the mesh. A daemon that runs takes them out
// when it is stopped for an uninstall.
func wouldLeave(s settings.Settings) ([]step, error) {
	found, err := lookForLeft(s)
	if err != nil || found == (left{}) {
		return nil, err
	}
	file := agentRecords(s)
	if found.inPods == 0 {
		file = found.onNode
	}
	return []step{{
		Step: "keep", File: file,
		Reason: "unless a daemon in ambient mode takes the pods out when it is stopped: " + found.stayCaptured(),
	}}, nil
}
