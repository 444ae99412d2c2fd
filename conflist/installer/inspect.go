// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/meshcni/meshcni/conflist/reconciler"
)

// State is the state of a file of the installation.
type State string

// The states.
const (
	StateOK      State = "ok"
	StateMissing State = "missing" // an install would write it
	StateDiffers State = "differs" // an install would rewrite it
	StateWaiting State = "waiting" // an install would wait for other programs
	StateFailed  State = "failed"  // unknown, and an install would fail
)

// Finding is one file of the installation, compared with what it should be.
type Finding struct {
	// Part is "binaries", "kubeconfig", "config" or "marker".
	Part string `json:"part"`
	// Path is the file's path, as this process sees it; empty if the file is not known.
	Path   string `json:"path,omitempty"`
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Err is the error in Reason if the state is failed; it may be an [OptionError].
	Err error `json:"-"`
}

func (f Finding) failed(err error) Finding {
	f.State, f.Reason, f.Err = StateFailed, err.Error(), err
	return f
}

// compared returns the finding with the state of a file that is the same as here, or differs for a
// reason. With err the file could not be read.
func (f Finding) compared(same bool, err error, differs string) Finding {
	f.State = StateOK
	switch {
	case isMissing(err):
		f.State, f.Reason = StateMissing, "it isn't there"
	case err != nil:
		return f.failed(explain(err))
	case !same:
		f.State, f.Reason = StateDiffers, differs
	}
	return f
}

// Status is the state of an installation on a node.
type Status struct {
	// Right means that all findings are ok.
	Right bool `json:"right"`
	// Running means that a daemon is at work on the node.
	Running bool `json:"running"`
	// Claim is the record of what was installed, or nil.
	Claim *ClaimStatus `json:"claim,omitempty"`
	// Uninstalled is when the plugin was uninstalled, or nil if it was not, or was installed since.
	Uninstalled *time.Time `json:"uninstalled,omitempty"`
	Findings    []Finding  `json:"findings"`
}

// ClaimStatus is the claim's record of the program that installed.
type ClaimStatus struct {
	Owner   string    `json:"owner"`
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
	// Configs are the CNI configurations with an entry of ours.
	Configs []string `json:"configs,omitempty"`
}

// Inspect compares the node with the settings, and changes nothing.
func (i *Installer) Inspect(ctx context.Context) Status {
	i = i.at(ctx)
	status := Status{Running: i.running(), Claim: i.claimStatus(), Uninstalled: i.uninstalledAt()}
	status.Findings = slices.Concat(i.inspectBinaries(ctx), i.inspectKubeconfig(), []Finding{i.inspectConfig(ctx)})
	if status.Uninstalled != nil {
		status.Findings = append(status.Findings, Finding{
			Part: "marker", Path: i.binDir().In(i.options.markerName()), State: StateDiffers,
			Reason: "the plugin lets every pod pass because of this note",
		})
	}
	status.Right = !slices.ContainsFunc(status.Findings, func(f Finding) bool { return f.State != StateOK })
	return status
}

func (i *Installer) claimStatus() *ClaimStatus {
	current, err := i.claims.load()
	if err != nil {
		return nil
	}
	return &ClaimStatus{Owner: current.Owner, Version: current.Version, Since: current.Since, Configs: current.Configs.Files()}
}

func (i *Installer) uninstalledAt() *time.Time {
	data, err := i.binDir().Read(i.options.markerName(), maxClaim)
	var note marker
	if err != nil || json.Unmarshal(data, &note) != nil {
		return nil
	}
	return &note.Time
}

func (i *Installer) inspectBinaries(ctx context.Context) []Finding {
	b := i.binaries()
	if i.options.SourceDir == "" {
		return nil
	}
	sources, err := b.sources(i.options.build(ctx))
	if err != nil {
		return []Finding{Finding{Part: b.Name()}.failed(err)}
	}
	findings := make([]Finding, 0, len(sources))
	for _, binary := range sources {
		finding := Finding{Part: b.Name(), Path: i.binDir().In(binary.name)}
		same, err := i.binDir().SameAs(i.in(i.options.SourceDir), binary.source, binary.name)
		findings = append(findings, finding.compared(same || i.options.KeepBinaries, err, "it differs from the one in "+i.options.SourceDir))
	}
	return findings
}

func (i *Installer) inspectKubeconfig() []Finding {
	k := i.kubeconfig()
	if i.options.Kubeconfig == nil {
		return nil
	}
	finding := Finding{Part: k.Name(), Path: i.options.kubeconfigPath()}
	file, err := k.build()
	if err != nil {
		return []Finding{finding.failed(err)}
	}
	have, err := i.in(filepath.Dir(finding.Path)).Read(filepath.Base(finding.Path), maxCredential)
	same := bytes.Equal(have, file.YAML())
	return []Finding{finding.compared(same, err, "its server, certificate or token is out of date")}
}

func (i *Installer) inspectConfig(ctx context.Context) Finding {
	c := i.config()
	finding := Finding{Part: c.Name(), State: StateOK}
	err := c.prepare(ctx)
	var plan reconciler.Plan
	if err == nil {
		plan, err = c.reconciler.Plan()
	}
	if plan.File != "" {
		finding.Path = i.netDir().In(filepath.FromSlash(plan.File))
	}
	if err == nil {
		err = plan.Err
	}
	switch {
	case errors.Is(err, ErrWaiting):
		finding.State, finding.Reason = StateWaiting, err.Error()
	case err != nil:
		finding = finding.failed(explain(err))
	case plan.Steps() > 0:
		finding.State, finding.Reason = StateDiffers, reason(plan.Change)
		there := []reconciler.Cause{reconciler.Updated, reconciler.Tampered, reconciler.Propagated}
		if plan.Change != nil && !slices.Contains(there, plan.Change.Cause) {
			finding.State = StateMissing
		}
	}
	return finding
}

func reason(change *reconciler.Change) string {
	if change == nil {
		return "it differs from what the settings ask for"
	}
	switch change.Cause {
	case reconciler.Fresh:
		return "the plugin isn't in it"
	case reconciler.Updated:
		return "the plugin's entry was made from other settings, or by another version"
	case reconciler.Propagated:
		return "what it was copied from has changed"
	case reconciler.Overwritten, reconciler.Tampered, reconciler.Removed, reconciler.RenamedAway, reconciler.Preempted:
	}
	return change.String()
}
