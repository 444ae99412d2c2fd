// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
)

// nodeState is the path of the file about the node's proxies, for the capture on the node.
func (o options) nodeState() string { return ambientconf.NodeState(o.journal) }

// errOtherForm means that the node's pods are captured in the other form, and cannot move.
var errOtherForm = errors.New("the node's pods are captured in the other form of ambient mode, and cannot move to this one")

// former is what is left of the form of capture that the settings do not ask for.
type former struct {
	mode string
	pods []string // the UIDs of those that are captured
	both []string // those that the new form has begun to capture
	left []string // those that the former form captures no new connection of, or is about to
	open opener
}

// findFormer looks for what is left of the other form; nil if nothing is. Rules for probes without
// any pod are removed at once.
func (s surroundings) findFormer(ctx context.Context, drain drainTime) (*former, error) {
	if s.settings.OnNode() {
		return s.findInPod(ctx, drain)
	}
	return s.findOnNode(ctx, drain)
}

// findInPod looks for pods that are captured in their own namespaces: each has a record.
func (s surroundings) findInPod(ctx context.Context, drain drainTime) (*former, error) {
	captured, left, err := s.recordedPods()
	if err != nil {
		return nil, fmt.Errorf("see whether pods are captured in their own namespaces: %w", err)
	}
	all := slices.Concat(captured, left)
	if len(all) == 0 {
		if err := s.planes.chosen.Remove(ctx, s.host, ambientconf.Owner); err != nil {
			return nil, fmt.Errorf("remove what mode %q has left on the host: %w", ambientconf.ModeInPod, err)
		}
		return nil, nil //nolint:nilnil // nothing is left
	}
	if s.proxy == "" {
		return nil, otherForm(ambientconf.ModeInPod, fmt.Sprintf("%s has records of %d pods", s.journal, len(all)),
			"without the flag -proxy there is no socket for their proxy: give it")
	}
	return &former{mode: ambientconf.ModeInPod, pods: all, left: left, open: s.openInPod(drain)}, nil
}

// findOnNode looks for pods that are captured in the node's namespace: they have members, and the
// file about the proxies is there.
func (s surroundings) findOnNode(ctx context.Context, drain drainTime) (*former, error) {
	if _, err := os.Lstat(s.nodeState()); errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // nothing is left
	}
	found := s.nodeState() + " exists"
	switch {
	case s.host == nil:
		return nil, otherForm(ambientconf.ModeNode, found, "noHost keeps the agent from the host's rules: remove it")
	case s.settings.ProxyNamespace == "":
		return nil, otherForm(ambientconf.ModeNode, found, "their proxy's pod is not known: set proxyNamespace")
	}
	state, err := s.planes.chosen.Observe(ctx, s.host, ambientconf.NodeOwner)
	if err != nil {
		return nil, fmt.Errorf("see which pods are captured in the node's namespace: %w", err)
	}
	f := &former{mode: ambientconf.ModeNode, open: s.openOnNode(drain)}
	if f.both, _, err = s.recordedPods(); err != nil {
		return nil, fmt.Errorf("see which pods are captured in their own namespaces already: %w", err)
	}
	seen := map[string]bool{"": true} // a member without a pod is another program's
	for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
		for _, uid := range state.Owners[ambient.MeshedSet(family)] {
			if !seen[uid] {
				f.pods = append(f.pods, uid)
			}
			seen[uid] = true
		}
	}
	return f, nil
}

// recordedPods returns the UIDs of the pods that have a record: those that are captured in their
// own namespaces, and those that leave, or are not captured yet, as the record says.
func (s surroundings) recordedPods() (captured, left []string, err error) {
	records := journal.Journal{Directory: s.journal}
	recorded, err := records.Attachments()
	if err != nil {
		return nil, nil, err
	}
	for _, one := range recorded {
		record, err := records.Read(one)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil && !errors.Is(err, journal.ErrRecord): // the agent reports a damaged one
			return nil, nil, err
		case record.Leaving:
			left = append(left, one.ContainerID)
		default:
			captured = append(captured, one.ContainerID)
		}
	}
	return captured, left, nil
}

func otherForm(is, found, why string) error {
	return fmt.Errorf("%w: %s, so that they are in mode %q, and %s, or set that mode again, take all pods of the node out of the mesh "+
		"(install-cni ambient withdraw --all), and set this mode then", errOtherForm, found, is, why)
}
