// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// Config keeps the plugin's entry in the primary CNI configuration, the one that the container runtime uses.
type Config struct {
	*Installer
	listed string // the file that had the entry last
}

// Name is "config".
func (c *Config) Name() string { return "config" }

// Directories are those whose changes concern this part.
func (c *Config) Directories() []string { return []string{c.settings.NetDir, c.settings.BinDir} }

// Concerns reports whether a change of the file at path may need this part.
func (c *Config) Concerns(path string) bool {
	if filepath.Dir(path) != c.settings.NetDir {
		return path == markerPath(c.settings) || path == c.claims.path()
	}
	return !filesystem.IsTemporary(filepath.Base(path))
}

// Ensure puts the entry into the primary configuration, takes it from those that no longer are, and then removes the marker of an
// earlier uninstall. It reports whether any of this was needed. Without a primary configuration, without what the plugin needs, or when
// all is done but the runtime would take another file first, the error wraps [ErrWaiting].
func (c *Config) Ensure(ctx context.Context) (changed bool, err error) {
	if err := c.needed(); err != nil {
		return false, err
	}
	c.removeStale(c.settings.NetDir, staleAfter)
	name, err := c.choose()
	if err != nil {
		return false, err
	}
	listed, changed, err := c.insert(ctx, name)
	switch {
	case errors.Is(err, filesystem.ErrChanged) || isMissing(err):
		return true, nil // somebody is writing there: look again
	case err != nil:
		return changed, fmt.Errorf("add the plugin to %s: %w", filepath.Join(c.settings.NetDir, name), explain(err))
	case listed != c.listed:
		c.log.Info("the plugin is in the primary CNI configuration", "file", filepath.Join(c.settings.NetDir, listed))
		c.listed = listed
	}
	tidied, err := c.tidy(listed)
	if err != nil || changed || tidied {
		return changed || tidied, err
	}
	return false, c.preempted(listed)
}

// tidy takes the entry from the configurations that were primary before, and removes the marker of an earlier uninstall.
func (c *Config) tidy(listed string) (changed bool, err error) {
	left, err := c.leaveOthers(listed)
	if err != nil {
		return left, err
	}
	unmarked, err := c.unmark()
	return left || unmarked, err
}

// preempted is an error when the runtime would take another file than the one that cni-conf-name asks for, and so never call the plugin.
func (c *Config) preempted(listed string) error {
	if c.settings.ConfName == "" || c.settings.FixedDefaultNetwork {
		return nil
	}
	first, err := conflist.Primary(os.DirFS(c.settings.NetDir))
	if err != nil {
		return fmt.Errorf("look for configurations that sort before %s: %w", listed, explain(err))
	}
	if first != listed {
		return fmt.Errorf("%w for %s to go: it sorts before %s, which cni-conf-name asks for, and a runtime that takes the first file never "+
			"calls the plugin; remove it or name it in cni-conf-name, or set fixed-default-network if the runtime has a default network by name",
			ErrWaiting, first, listed)
	}
	return nil
}

// needed makes sure that this daemon keeps the node, and that no configuration names a plugin that pods could not be made with.
func (c *Config) needed() error {
	if err := c.claims.keep(); err != nil {
		return err
	}
	for _, path := range []string{binaryPath(c.settings), kubeconfigPath(c.settings)} {
		if _, err := os.Lstat(path); err != nil {
			return fmt.Errorf("%w for what the plugin needs, before pods are made with it: %w", ErrWaiting, err)
		}
	}
	return nil
}

// choose finds the primary configuration.
func (c *Config) choose() (string, error) {
	if c.settings.ConfName == "" {
		first, err := conflist.Primary(os.DirFS(c.settings.NetDir))
		if errors.Is(err, conflist.ErrNoPrimary) {
			return "", fmt.Errorf("%w for the cluster's network plugin: %s: %w", ErrWaiting, c.settings.NetDir, err)
		}
		if err != nil {
			return "", fmt.Errorf("look for the primary configuration in %s: %w", c.settings.NetDir, explain(err))
		}
		return first, nil
	}
	named, found := c.named()
	if !found {
		return "", fmt.Errorf("%w for %s, which cni-conf-name asks for", ErrWaiting, filepath.Join(c.settings.NetDir, c.settings.ConfName))
	}
	return named, nil
}

// named finds the file that the settings name, be it a list now that was a single configuration, or the other way round. A single
// configuration that stands again beside the list we made of it comes first, as it does for the runtime.
func (c *Config) named() (name string, found bool) {
	stem := strings.TrimSuffix(c.settings.ConfName, filepath.Ext(c.settings.ConfName))
	candidates := []string{c.settings.ConfName}
	for _, extension := range []string{".conf", ".json", ".conflist"} {
		if stem+extension != c.settings.ConfName {
			candidates = append(candidates, stem+extension)
		}
	}
	if current, err := c.claims.load(); err == nil {
		if record := current.config(c.settings.ConfName); record != nil && record.Lifted != nil {
			candidates = append([]string{record.Lifted.Name}, candidates...)
		}
	}
	for _, candidate := range candidates {
		if _, err := os.Lstat(filepath.Join(c.settings.NetDir, candidate)); err == nil {
			return candidate, true
		}
	}
	return "", false
}

// insert puts the entry into a configuration, and returns the name of the file that has it now.
func (c *Config) insert(ctx context.Context, name string) (listed string, changed bool, err error) {
	doc, err := c.netDir().Read(name, conflist.MaxSize)
	if err != nil {
		return "", false, err
	}
	if empty(doc) {
		return "", false, fmt.Errorf("%w for the network's own plugins: %s has none, and ours alone makes no network", ErrWaiting, name)
	}
	body, err := c.entry(ctx)
	if err != nil {
		return "", false, err
	}
	edit, err := conflist.Insert(doc, conflist.Plugin{Type: pluginType, Body: body})
	if err != nil {
		return "", false, err
	}
	if edit.Lifted {
		listed = strings.TrimSuffix(name, filepath.Ext(name)) + ".conflist"
		return listed, true, c.lift(name, listed, doc, edit.Out)
	}
	changed, err = c.splice(name, doc, edit.Out)
	return name, changed, err
}

// entry is what the plugin is to read.
func (c *Config) entry(ctx context.Context) (json.RawMessage, error) {
	chosen := c.settings
	chosen.PluginDataplane = c.dataplane(ctx).Setting
	return entryOf(chosen)
}

// empty reports whether a document is a list without plugins.
func empty(doc []byte) bool {
	var list struct {
		Plugins []json.RawMessage `json:"plugins"`
	}
	return json.Unmarshal(doc, &list) == nil && list.Plugins != nil && len(list.Plugins) == 0
}

// splice writes a list with the entry in it.
func (c *Config) splice(name string, doc, out []byte) (changed bool, err error) {
	changed, err = c.netDir().Write(name, out, filesystem.Options{Like: name, Expect: doc})
	if err != nil {
		return changed, err
	}
	if changed {
		c.log.Info("wrote the plugin's entry into the CNI configuration", "file", c.netDir().In(name))
	}
	without, err := conflist.Remove(out, pluginType)
	if err != nil {
		return changed, err
	}
	return changed, c.claims.update(func(claim *claim) {
		if old := claim.config(name); old == nil || old.Lifted == nil {
			claim.setConfig(claimedConfig{Name: name, Original: digest(without.Out)})
		}
	})
}

// lift writes the list that takes the place of a single configuration, and removes that. Until it is gone the runtime uses it, because it
// sorts first; from then on it uses the list. Its content goes into the claim before anything else happens.
func (c *Config) lift(name, listed string, doc, out []byte) error {
	if err := c.makeRoom(listed, out); err != nil {
		return err
	}
	without, err := conflist.Remove(out, pluginType)
	if err != nil {
		return err
	}
	record := claimedConfig{Name: listed, Original: digest(without.Out), Lifted: &liftedConfig{Name: name, Content: doc}}
	if err := c.claims.update(func(claim *claim) { claim.setConfig(record) }); err != nil {
		return err
	}
	if _, err := c.netDir().Write(listed, out, filesystem.Options{Like: name}); err != nil {
		return err
	}
	c.log.Info("made a list of a single CNI configuration and added the plugin", "file", c.netDir().In(listed), "from", name)
	_, err = c.netDir().RemoveExpected(name, doc)
	return err
}

// makeRoom refuses to overwrite a list that somebody else put beside a single configuration. One that was made of an earlier single
// configuration goes before the claim forgets that: the runtime doesn't use it, now that the single one is back.
func (c *Config) makeRoom(listed string, out []byte) error {
	existing, err := c.netDir().Read(listed, conflist.MaxSize)
	if isMissing(err) || (err == nil && string(existing) == string(out)) {
		return nil
	}
	if err != nil {
		return err
	}
	if current, err := c.claims.load(); err == nil {
		if record := current.config(listed); record != nil && record.Lifted != nil {
			_, err := c.netDir().RemoveExpected(listed, existing)
			return err
		}
	}
	return fmt.Errorf("it is a single configuration and would become %s, which exists and is somebody else's; "+
		"remove the one that isn't in use", listed)
}

// leaveOthers takes the entry out of the configurations that were primary before.
func (c *Config) leaveOthers(listed string) (changed bool, err error) {
	current, err := c.claims.load()
	if err != nil {
		return false, fmt.Errorf("look for configurations that were primary before: %w", err)
	}
	for _, record := range current.Configs {
		if record.Name == listed {
			continue
		}
		if err := c.undo(record); err != nil {
			return changed, fmt.Errorf("take the plugin out of %s, which isn't primary any more: %w", record.Name, explain(err))
		}
		changed = true
		if err := c.claims.update(func(claim *claim) { claim.dropConfig(record.Name) }); err != nil {
			return changed, err
		}
	}
	return changed, nil
}
