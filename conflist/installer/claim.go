// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// claim is the record of what was installed on the node, in JSON beside the binary. Where an
// uninstall needs a record, it is written before the change that it records.
type claim struct {
	// Format is the version of this record.
	Format int `json:"format"`
	// Owner is the program that installed, Version its version, and Since the first install.
	Owner   string    `json:"owner"`
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
	// Session is the daemon that keeps the node.
	Session session `json:"session"`
	// Binaries are the plugin, and the files in BinDir that did not exist before.
	Binaries []string `json:"binaries,omitempty"`
	// Kubeconfig is the kubeconfig's path, as this process sees it.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Former are the paths of kubeconfigs written with other options that may still exist.
	Former []string `json:"former_kubeconfigs,omitempty"`
	// Configs are the CNI configurations with an entry of ours.
	Configs reconciler.Claim `json:"configs,omitzero"`
}

const claimFormat = 1

type claims struct {
	options Options // as at the start

	mu  sync.Mutex // guards all fields below: parts work concurrently
	own session    // this daemon's; the number is zero until it has taken the claim
	// lock is the plugin's own file, which this daemon has locked; nil if it has not. sole means that
	// no mesh was at work when this daemon began.
	lock *os.File
	sole bool
	// superseded means that a newer daemon has taken the claim since, which may have ended without
	// leaving.
	superseded bool
	ended      ending
	// taken means that the claim has become this daemon's, and OnTake was not called yet.
	taken bool
	// known is the claim as last read or written, or nil. It outlives the loss of the file.
	known []byte
	// refused is why the file was last unusable, so that each reason is reported once.
	refused string
}

func newClaims(o Options) *claims { return &claims{options: o, own: session{ID: rand.Text()}} }

// in returns the claim's directory, with an observer of the calls or nil.
func (c *claims) in(o filesystem.Observer) filesystem.Directory {
	return filesystem.Directory{Path: c.options.BinDir, Observer: o}
}

func (c *claims) path() string { return c.in(nil).In(c.options.ClaimName) }

// load returns the claim. A missing claim is fs.ErrNotExist; it is an error too if it cannot be
// read, or names files outside its directories.
func (c *claims) load() (claim, error) {
	data, err := c.in(nil).Read(c.options.ClaimName, maxClaim)
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
	for _, path := range loaded.kubeconfigs("") {
		if checkKubeconfigName(filepath.Base(path)) != nil {
			return claim{}, fmt.Errorf("claim %s: %q is not a kubeconfig of ours", c.path(), path)
		}
	}
	return loaded, nil
}

// update changes the claim on disk, and writes nothing if it stays the same. It tries again if
// another daemon has changed the claim meanwhile, so that neither loses what the other recorded. A
// missing or unreadable claim is replaced by the one that this process knew, or by a new one. With
// [ErrSuperseded] a newer daemon keeps the node, and nothing was written.
func (c *claims) update(o filesystem.Observer, change func(*claim)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		before, err := c.in(o).Read(c.options.ClaimName, maxClaim)
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
		own, superseded, taken := c.own, c.superseded, c.taken
		if err := c.take(found); err != nil {
			return err
		}
		err = c.save(o, c.changed(current, err, change), before)
		if err != nil { // a number that is not on disk may be another daemon's
			c.own, c.superseded, c.taken = own, superseded, taken
		}
		if err == nil && c.taken {
			c.taken = false
			c.options.OnTake()
		}
		gone := before != nil && isMissing(err)
		if !gone && !errors.Is(err, filesystem.ErrChanged) {
			return err
		}
	}
}

// changed returns the claim after a change; err is why the current claim is missing or unusable.
func (c *claims) changed(current claim, err error, change func(*claim)) claim {
	if err != nil {
		if !isMissing(err) && c.refused != err.Error() {
			c.refused = err.Error()
			c.options.emit(Warning, "the claim can't be used; beginning a new one", "error", err)
		}
		current = c.remembered()
	}
	current.Format, current.Owner, current.Version, current.Session = claimFormat, c.options.Owner, c.options.Version, c.own
	change(&current)
	return current
}

// remembered returns the claim whose file is lost, as far as this process knew it.
func (c *claims) remembered() claim {
	if c.known != nil {
		if known, err := c.parse(c.known); err == nil {
			return known
		}
	}
	return claim{Since: c.options.Now().UTC().Truncate(time.Second)}
}

func (c *claims) save(o filesystem.Observer, current claim, before []byte) error {
	data, err := json.MarshalIndent(current, "", "  ")
	if err != nil {
		return fmt.Errorf("claim %s: %w", c.path(), err)
	}
	data = append(data, '\n')
	if _, err = c.in(o).Write(c.options.ClaimName, data, filesystem.Options{Expect: before}); err != nil {
		return fmt.Errorf("record what is done: %w", explain(err))
	}
	c.known = data
	return nil
}

func (c *claims) remove(o filesystem.Observer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = nil
	_, err := c.in(o).Remove(c.options.ClaimName)
	return err
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// ClaimState returns the state of the claim on the node: "held" by this daemon, "superseded" by a
// newer one, "free" after the newer one has left, "missing" or "unreadable". It reads the disk each
// time, and may be called while the parts work.
func (i *Installer) ClaimState() string {
	current, err := i.claims.load() // changes no fields of claims
	switch {
	case isMissing(err):
		return "missing"
	case err != nil:
		return "unreadable"
	case current.Session.ID == i.claims.own.ID:
		return "held"
	case current.Session.ID == "":
		return "free"
	}
	return "superseded"
}

// Keeps reports whether ClaimState finds that this daemon holds the claim on the node.
func (i *Installer) Keeps() bool { return i.ClaimState() == "held" }
