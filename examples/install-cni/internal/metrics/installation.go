// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"sync"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// The results of istio_cni_installs_total.
const (
	succeeded        = "SUCCESS"
	binariesFailed   = "COPY_BINARIES_FAILURE"
	kubeconfigFailed = "CREATE_KUBECONFIG_FAILURE"
	configFailed     = "CREATE_CNI_CONFIG_FAILURE"
)

func installResults() []string {
	return []string{succeeded, binariesFailed, kubeconfigFailed, configFailed}
}

// installation follows the pieces of one daemon, which work at the same time.
type installation struct {
	metrics *Metrics
	mu      sync.Mutex
	wrote   bool // since everything was last in place
	first   bool // until everything was in place once
}

// watched is a piece of the installation that is counted.
type watched struct {
	installer.Part
	of      *installation
	failure string // the result that its failures count as
	last    bool   // it completes an installation
	drifted bool   // a change was found, and the piece was not right since
}

// Watch returns the installer's pieces, wrapped to count what they do. Arguments and results are in
// the order in which the pieces depend on each other.
func (m *Metrics) Watch(binaries, kubeconfig, config installer.Part) []installer.Part {
	of := &installation{metrics: m, first: true}
	return []installer.Part{
		&watched{Part: binaries, of: of, failure: binariesFailed},
		&watched{Part: kubeconfig, of: of, failure: kubeconfigFailed},
		&watched{Part: config, of: of, failure: configFailed, last: true},
	}
}

func (w *watched) Pace() upkeep.Bucket { return upkeep.PaceOf(w.Part) }

func (w *watched) Ensure(ctx context.Context) (installer.Result, error) {
	outcome, err := w.Part.Ensure(ctx)
	switch {
	case errors.Is(err, installer.ErrWaiting) || errors.Is(err, installer.ErrSuperseded):
	case err != nil:
		w.of.metrics.installs.WithLabelValues(w.failure).Inc()
	}
	if w.of.completed(outcome != installer.Right, w.last && err == nil) {
		w.of.metrics.installs.WithLabelValues(succeeded).Inc()
	}
	w.drift(outcome, err)
	return outcome, err
}

// completed reports whether a pass of the last part that wrote nothing has completed an
// installation.
func (i *installation) completed(wrote, last bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.wrote = i.wrote || wrote
	if wrote || !last || !i.wrote && !i.first {
		return false
	}
	i.wrote, i.first = false, false
	return true
}

// drift counts a change once, even if restoring takes several passes.
func (w *watched) drift(outcome installer.Result, err error) {
	switch {
	case outcome == installer.Restored && !w.drifted:
		w.drifted = true
		w.of.metrics.driftFound.WithLabelValues(w.Name()).Inc()
	case outcome == installer.Right && err == nil && w.drifted:
		w.drifted = false
		w.of.metrics.driftHealed.WithLabelValues(w.Name()).Inc()
	}
}
