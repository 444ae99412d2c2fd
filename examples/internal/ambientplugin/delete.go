// SPDX-License-Identifier: Apache-2.0

package ambientplugin

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/interception/plugin"
)

// Deleted tells the agent that a sandbox ends, as Deleted of [plugin.Options]: the agent then takes
// the pod's addresses out of the host's sets before the plugins after this one give them to another
// pod. It is one request, and none for a pod that Before would not ask about. An agent that is away
// is no error, because it learns of the pod's end from its feed.
func (h Hook) Deleted(ctx context.Context, r plugin.Request) error {
	if !r.Config.AmbientEnabled || isProxy(r.Config, r.Pod.Namespace, r.Pod.Name) || hasSidecar(r) {
		return nil
	}
	addresses, err := r.Addresses()
	if err != nil {
		r.Log.Debug("the agent of ambient mode is not told which addresses the pod had", "error", err.Error())
	}
	var namespace *os.File
	if open, err := r.OpenNetns(); err == nil { // otherwise the container tells which sandbox it is
		defer open.Close() //nolint:errcheck // nothing is written through it
		namespace = open.File()
	}
	held, err := event.Leave(ctx, filepath.Join(r.Config.RunDir, socketName), podOf(r, addresses), namespace)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if err == nil {
		r.Log.Debug("the agent of ambient mode was told that the sandbox ends", "held", held)
	}
	return err
}
