// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// Removal is one step of an uninstall.
type Removal struct {
	// Path is the file's path. The file is removed, edited (Edited), or kept (Kept).
	Path   string
	Edited bool
	Kept   bool
	Reason string
}

// InspectRemoval returns the steps that an uninstall would take now, and changes nothing.
func (i *Installer) InspectRemoval(ctx context.Context) ([]Removal, error) {
	i = i.at(ctx)
	current, err := i.claims.load()
	if err != nil && !isMissing(err) {
		current = claim{} // an uninstall looks for what is installed instead
	}
	removals, err := i.entriesToRemove()
	if err != nil {
		return nil, err
	}
	for _, path := range current.kubeconfigs(i.options.kubeconfigPath()) {
		if _, err := os.Lstat(path); err == nil {
			removals = append(removals, Removal{Path: path, Reason: "the plugin's kubeconfig, with a token in it"})
		}
	}
	for _, path := range i.sockets(ctx) {
		removals = append(removals, Removal{Path: path, Reason: "a daemon's socket, on which no program listens"})
	}
	binaries, err := i.binariesToRemove(current)
	return append(removals, binaries...), err
}

func (i *Installer) entriesToRemove() ([]Removal, error) {
	r, err := i.remover(false)
	if err != nil {
		return nil, err
	}
	plan, err := r.PlanRemoval()
	if err != nil {
		return nil, explain(err)
	}
	var removals []Removal
	for _, e := range plan.Edits() {
		removals = append(removals, Removal{Path: i.netDir().In(filepath.FromSlash(e.File)), Edited: !e.Removed, Reason: e.Why})
	}
	if plan.Err != nil {
		removals = append(removals, Removal{Path: i.options.NetDir, Kept: true, Reason: plan.Err.Error()})
	}
	return removals, nil
}

func (i *Installer) binariesToRemove(current claim) ([]Removal, error) {
	names, reason, err := i.needed(current)
	if err != nil {
		return nil, err
	}
	var removals []Removal
	for _, name := range names {
		if _, err := i.binDir().Stat(name); err == nil {
			removals = append(removals, Removal{Path: i.binDir().In(name), Kept: reason != "", Reason: reason})
		}
	}
	return removals, nil
}

// cachedUses counts the pods' networks that the runtime, or Multus, will tear down with our plugin:
// libcni keeps the configuration of each (<cache>/results/<network>-<container>-<interface>) and
// calls its plugins on DEL. Multus has a cache of its own, by default below the runtime's. A file
// that is not such an entry but contains the plugin's name counts. A missing cache is
// fs.ErrNotExist.
func cachedUses(cacheDir, plugin string) (uses int, err error) {
	if _, err := os.Stat(cacheDir); err != nil {
		return 0, err
	}
	for _, cache := range []string{cacheDir, filepath.Join(cacheDir, "multus")} {
		found, err := usesIn(filesystem.Directory{Path: filepath.Join(cache, "results")}, plugin)
		if err != nil {
			return 0, err
		}
		uses += found
	}
	return uses, nil
}

// usesIn is cachedUses for one directory, which need not be there.
func usesIn(results filesystem.Directory, plugin string) (uses int, err error) {
	entries, err := results.List()
	if isMissing(err) {
		return 0, nil // no network was ever created
	}
	if err != nil {
		return 0, fmt.Errorf("list the networks of running pods: %w", err)
	}
	for _, file := range entries {
		if !file.Type().IsRegular() {
			continue
		}
		data, err := results.Read(file.Name(), maxCacheEntry)
		if isMissing(err) {
			continue // that pod has just been removed
		}
		if err != nil {
			return 0, fmt.Errorf("look for the plugin in a running pod's network: %w", err)
		}
		if names(data, plugin) {
			uses++
		}
	}
	return uses, nil
}

// names reports whether a cache entry's configuration contains our plugin.
func names(cacheEntry []byte, plugin string) bool {
	var cached struct {
		Config []byte `json:"config"` // a list; base64 in JSON
	}
	if err := json.Unmarshal(cacheEntry, &cached); err == nil && len(cached.Config) > 0 {
		_, found, err := conflist.Find(cached.Config, plugin)
		return found || (err != nil && bytes.Contains(cached.Config, []byte(plugin)))
	}
	return bytes.Contains(cacheEntry, []byte(plugin))
}

// listensWithin bounds the attempt to connect to a socket.
const listensWithin = time.Second

// sockets returns the paths of the sockets that a daemon has left. A socket on which a program
// listens belongs to that program: two meshes may use the same name.
func (i *Installer) sockets(ctx context.Context) []string {
	dialer := net.Dialer{Timeout: listensWithin}
	var left []string
	for _, name := range i.options.Sockets {
		path := i.runDir().In(name)
		info, err := i.in(filepath.Dir(path)).Stat(filepath.Base(path))
		if err != nil || info.Mode().Type() != fs.ModeSocket {
			continue
		}
		if connection, err := dialer.DialContext(context.WithoutCancel(ctx), "unix", path); err == nil {
			connection.Close() //nolint:errcheck // nothing was written
			continue
		}
		left = append(left, path)
	}
	return left
}

// removeSockets removes them, and the directories below the run directory that are empty then.
func (i *Installer) removeSockets(ctx context.Context) error {
	var problems *multierror.Error
	for _, path := range i.sockets(ctx) {
		_, err := i.in(filepath.Dir(path)).Remove(filepath.Base(path))
		problems = multierror.Append(problems, err)
	}
	for _, name := range i.options.Sockets {
		if filepath.Dir(name) == "." {
			continue
		}
		below := i.in(i.runDir().In(filepath.Dir(name)))
		if entries, err := below.List(); err == nil && len(entries) == 0 {
			_, err = below.RemoveEmpty()
			problems = multierror.Append(problems, err)
		}
	}
	return problems.ErrorOrNil()
}
