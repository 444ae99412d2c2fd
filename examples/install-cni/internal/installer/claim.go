// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// claim is the record of what was done to the node, in JSON beside the binary. It is written before the deed where undoing needs it.
type claim struct {
	// Format is the version of this record.
	Format int `json:"format"`
	// Owner is who installed, Version with which version, Since when at first.
	Owner   string    `json:"owner"`
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
	// Session is the daemon that keeps the node.
	Session session `json:"session"`
	// Binaries are the files in the node's CNI binary directory that weren't there before, or are the plugin.
	Binaries []string `json:"binaries,omitempty"`
	// Kubeconfig is its path as this process sees it.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Configs are the CNI configurations with an entry of ours.
	Configs reconciler.Claim `json:"configs,omitzero"`
}

const claimFormat = 1

// claims reads and writes the claim of one node.
type claims struct {
	directory filesystem.Directory
	owner     string
	version   string
	log       *slog.Logger
	now       func() time.Time

	mu  sync.Mutex // of all that follows: parts work at the same time
	own session    // this daemon's; the number is zero until it has taken the claim
	// superseded says that a newer daemon has taken it since.
	superseded bool
	// taken says that the claim is this daemon's again, or for the first time, and kept has not been told yet.
	taken bool
	kept  func()
	// known is the claim as this process last read or wrote it, nil before: what the file's loss doesn't lose.
	known []byte
	// refused is why the file was last found of no use, so that each reason is told once; empty when it was of use.
	refused string
}

func newClaims(s settings.Settings, o Options) *claims {
	kept := o.Kept
	if kept == nil {
		kept = func() {}
	}
	return &claims{
		kept:      kept,
		directory: filesystem.Directory{Path: s.BinDir, Observer: o.Observer}, owner: s.Owner(), version: o.Version, log: o.Log, now: o.Now,
		own: session{ID: rand.Text()},
	}
}

// path is the claim's.
func (c *claims) path() string { return c.directory.In(claimName) }

// load returns the claim. A missing one is fs.ErrNotExist; one that can't be read, or names files outside its directories, is an error.
func (c *claims) load() (claim, error) {
	data, err := c.directory.Read(claimName, maxClaim)
	if err != nil {
		return claim{}, err
	}
	return c.parse(data)
}

func (c *claims) parse(data []byte) (claim, error) {
	var loaded claim
	if err := json.Unmarshal(data, &loaded); err != nil {
		return claim{}, fmt.Errorf("claim %s: %w", c.path(), err)
	}
	if loaded.Format != claimFormat {
		return claim{}, fmt.Errorf("claim %s: format %d, this version knows %d", c.path(), loaded.Format, claimFormat)
	}
	for _, name := range loaded.Binaries {
		if err := filesystem.CheckName(name); err != nil {
			return claim{}, fmt.Errorf("claim %s: %w", c.path(), err)
		}
	}
	if loaded.Kubeconfig != "" && settings.CheckKubeconfigName(filepath.Base(loaded.Kubeconfig)) != nil {
		return claim{}, fmt.Errorf("claim %s: %q is not a kubeconfig of ours", c.path(), loaded.Kubeconfig)
	}
	return loaded, nil
}

// update changes the claim on disk, if change changes anything, and again when another daemon has changed it meanwhile: neither loses what
// the other recorded. A missing or unreadable claim is written again as this process knew it, or begun anew. With [ErrSuperseded] a
// newer daemon keeps the node, and nothing was written.
func (c *claims) update(change func(*claim)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		before, err := c.directory.Read(claimName, maxClaim)
		var current claim
		if err == nil {
			current, err = c.parse(before)
		}
		if err == nil {
			c.known, c.refused = before, ""
		}
		found := &current
		if err != nil {
			found = nil
		}
		if err := c.take(found); err != nil {
			return err
		}
		err = c.save(c.changed(current, err, change), before)
		if err == nil && c.taken {
			c.taken = false
			c.kept()
		}
		gone := before != nil && isMissing(err)
		if !gone && !errors.Is(err, filesystem.ErrChanged) {
			return err
		}
	}
}

// changed is the claim after a change; err says why there is none yet.
func (c *claims) changed(current claim, err error, change func(*claim)) claim {
	if err != nil {
		if !isMissing(err) && c.refused != err.Error() {
			c.refused = err.Error()
			c.log.Warn("the claim can't be used; beginning a new one", "error", err)
		}
		current = c.remembered()
	}
	current.Format, current.Owner, current.Version, current.Session = claimFormat, c.owner, c.version, c.own
	change(&current)
	return current
}

// remembered is the claim of which the file is lost, as far as this process knew it.
func (c *claims) remembered() claim {
	if c.known != nil {
		if known, err := c.parse(c.known); err == nil {
			return known
		}
	}
	return claim{Since: c.now().UTC().Truncate(time.Second)}
}

// save writes the claim in place of what was there before, if anything was.
func (c *claims) save(current claim, before []byte) error {
	data, err := json.MarshalIndent(current, "", "  ")
	if err != nil {
		return fmt.Errorf("claim %s: %w", c.path(), err)
	}
	data = append(data, '\n')
	if _, err = c.directory.Write(claimName, data, filesystem.Options{Expect: before}); err != nil {
		return fmt.Errorf("record what is done: %w", explain(err))
	}
	c.known = data
	return nil
}

func (c *claims) remove() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = nil
	_, err := c.directory.Remove(claimName)
	return err
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
