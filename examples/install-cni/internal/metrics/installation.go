// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"

	"github.com/meshcni/meshcni/examples/install-cni/internal/daemon"
	"github.com/meshcni/meshcni/examples/install-cni/internal/installer"
)

// The results of istio_cni_installs_total.
const (
	installed        = "SUCCESS"
	binariesFailed   = "COPY_BINARIES_FAILURE"
	kubeconfigFailed = "CREATE_KUBECONFIG_FAILURE"
	configFailed     = "CREATE_CNI_CONFIG_FAILURE"
)

func installResults() []string {
	return []string{installed, binariesFailed, kubeconfigFailed, configFailed}
}

// installation follows the parts of one daemon. They run one after the other.
type installation struct {
	metrics *Metrics
	wrote   bool // since the last time that all was in place
	first   bool // until it once was
}

// watched is a part of the installer that is counted.
type watched struct {
	daemon.Part
	of      *installation
	failure string // the result that stands for its failures
	drifts  bool   // that it writes again means that somebody changed what was there
	last    bool   // it is the one that completes an installation
	settled bool   // it has once had nothing to do
	drifted bool   // something was found, and not seen to be right since
}

// Watch counts what the parts of an installer do. They are given and returned in the order in which they run.
func (m *Metrics) Watch(binaries, kubeconfig, config daemon.Part) []daemon.Part {
	of := &installation{metrics: m, first: true}
	return []daemon.Part{
		&watched{Part: binaries, of: of, failure: binariesFailed, drifts: true},
		&watched{Part: kubeconfig, of: of, failure: kubeconfigFailed}, // a token that was renewed is no drift
		&watched{Part: config, of: of, failure: configFailed, drifts: true, last: true},
	}
}

// Ensure lets the part work.
func (w *watched) Ensure(ctx context.Context) (changed bool, err error) {
	changed, err = w.Part.Ensure(ctx)
	w.of.wrote = w.of.wrote || changed
	switch {
	case errors.Is(err, installer.ErrWaiting) || errors.Is(err, installer.ErrSuperseded):
	case err != nil:
		w.of.metrics.installs.WithLabelValues(w.failure).Inc()
	case !changed && w.last && (w.of.wrote || w.of.first):
		w.of.wrote, w.of.first = false, false
		w.of.metrics.installs.WithLabelValues(installed).Inc()
	}
	if w.drifts {
		w.drift(changed, err)
	}
	return changed, err
}

// drift counts once what takes several runs to put right.
func (w *watched) drift(changed bool, err error) {
	if changed && w.settled && !w.drifted {
		w.drifted = true
		w.of.metrics.driftFound.WithLabelValues(w.Name()).Inc()
	}
	if changed || err != nil {
		return
	}
	if w.drifted {
		w.drifted = false
		w.of.metrics.driftHealed.WithLabelValues(w.Name()).Inc()
	}
	w.settled = true
}
