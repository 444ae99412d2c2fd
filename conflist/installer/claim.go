// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/meshcni/meshcni/conflist/reconciler"
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
	// Former are the paths of kubeconfigs that were written with other options, and may still be there.
	Former []string `json:"former_kubeconfigs,omitempty"`
	// Configs are the CNI configurations with an entry of ours.
	Configs reconciler.Claim `json:"configs,omitzero"`
}

const claimFormat = 1

// claims reads and writes the claim of one node.
type claims struct {
	options Options // of the start

	mu  sync.Mutex // of all that follows: parts work at the same time
	own session    // this daemon's; the number is zero until it has taken the claim
	// locked says that this daemon has locked the plugin's own file, and sole that no mesh was at work when it began.
	locked, sole bool
	// superseded says that a newer daemon has taken it since.
	superseded bool
	// taken says that the claim is this daemon's again, or for the first time, and OnTake has not been told yet.
	taken bool
	// known is the claim as this process last read or wrote it, nil before: what the file's loss doesn't lose.
	known []byte
	// refused is why the file was last found of no use, so that each reason is told once; empty when it was of use.
	refused string
}

func newClaims(o Options) *claims { return &claims{options: o, own: session{ID: rand.Text()}} }

// in is the directory that has the claim, for one whose calls an observer sees; nil for none.
func (c *claims) in(o filesystem.Observer) filesystem.Directory {
	return filesystem.Directory{Path: c.options.BinDir, Observer: o}
}

// path is the claim's.
func (c *claims) path() string { return c.in(nil).In(c.options.ClaimName) }

// load returns the claim. A missing one is fs.ErrNotExist; one that can't be read, or names files outside its directories, is an error.
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

// update changes the claim on disk, if change changes anything, and again when another daemon has changed it meanwhile: neither loses what
// the other recorded. A missing or unreadable claim is written again as this process knew it, or begun anew. With [ErrSuperseded] a
// newer daemon keeps the node, and nothing was written.
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
		if err := c.take(found); err != nil {
			return err
		}
		err = c.save(o, c.changed(current, err, change), before)
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

// changed is the claim after a change; err says why there is none yet.
func (c *claims) changed(current claim, err error, change func(*claim)) claim {
	if err != nil {
		if !isMissing(err) && c.refused != err.Error() {
			c.refused = err.Error()
			c.options.tell(Warning, "the claim can't be used; beginning a new one", "error", err)
		}
		current = c.remembered()
	}
	current.Format, current.Owner, current.Version, current.Session = claimFormat, c.options.Owner, c.options.Version, c.own
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
	return claim{Since: c.options.Now().UTC().Truncate(time.Second)}
}

// save writes the claim in place of what was there before, if anything was.
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

// ClaimState says in a word whose the claim on the node is: "held" by this daemon, "superseded" by a newer one, "free" when that one has
// left, "missing" or "unreadable". It looks at the disk each time, and is safe beside the parts.
func (i *Installer) ClaimState() string {
	current, err := i.claims.load() // which changes nothing of them
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

// Keeps says whether the claim on the node is this daemon's, as ClaimState finds it.
func (i *Installer) Keeps() bool { return i.ClaimState() == "held" }
