// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
)

// maxConfig bounds what DEL reads of a configuration, which has a few KiB with the result of a
// chain.
const maxConfig = 1 << 20

// forget is the DEL command. It removes the attachment's record; the rules go with the namespace.
// Nothing may keep a pod from ending. So DEL is not served by skel, as other commands are, because
// skel fails if the configuration is damaged or too new; and failures are only logged. GC removes
// what is left.
func (c *call) forget(ctx context.Context) {
	conf := new(config)
	data, err := io.ReadAll(io.LimitReader(c.Stdin, maxConfig))
	if err == nil {
		conf.Config, err = pluginconf.Decode(data)
	}
	if errors.Is(err, pluginconf.ErrValue) {
		c.log.Info("the configuration has a wrong value, and is used without it", "error", err.Error())
		err = nil
	}
	c.runDir = c.Paths.RunDirOf(conf.Config)
	conf.RunDir = c.runDir
	a := journal.Attachment{Network: conf.Name, ContainerID: c.Getenv("CNI_CONTAINERID"), Interface: c.Getenv("CNI_IFNAME")}
	damaged := err
	if err == nil {
		err = conf.journal().Remove(a)
	}
	if err != nil {
		c.log.Info("the record of a container was not found; garbage collection removes it",
			"container", a.ContainerID, "error", err.Error())
	}
	if damaged == nil && c.Deleted != nil {
		c.tellDeleted(ctx, conf, a)
	}
}

// tellDeleted tells [Options].Deleted of a DEL. Nothing that comes of it fails the command.
func (c *call) tellDeleted(ctx context.Context, conf *config, a journal.Attachment) {
	err := func() (err error) {
		defer c.recoverInto(&err)
		ref, err := podOf(c.Getenv("CNI_ARGS"))
		if err != nil {
			return err
		}
		if _, decided := policedBy(c.Mesh, conf).ByName(ref.Namespace, ref.Name); decided {
			return nil
		}
		ctx, cancel := withTimeout(ctx, c.Limits.Deleted)
		defer cancel()
		log := c.log.With("container", a.ContainerID, "pod", ref.String())
		return c.Deleted(ctx, Request{
			Command: "DEL", Pod: ref, Attachment: a, Netns: c.Getenv("CNI_NETNS"), Config: conf.Config, Log: log,
		})
	}()
	if err != nil {
		c.log.Info("the end of a container was not told", "container", a.ContainerID, "error", err.Error())
	}
}

// collect is the GC command. It removes the records of containers that the runtime doesn't list.
// Without a list it removes none.
func (c *call) collect(configuration []byte) error {
	conf, err := c.configure(configuration)
	if err != nil {
		return err
	}
	var list struct {
		// https://www.cni.dev/docs/spec/#gc-clean-up-any-stale-resources
		Valid json.RawMessage `json:"cni.dev/valid-attachments"`
	}
	if err := json.Unmarshal(configuration, &list); err != nil || list.Valid == nil {
		return err
	}
	var named []types.GCAttachment // libcni writes an empty list as null
	if err := json.Unmarshal(list.Valid, &named); err != nil {
		return &Error{Code: types.ErrInvalidNetworkConfig, Step: "read the list of valid attachments", Err: err, Remedy: runtimeRemedy}
	}
	valid := make([]journal.Attachment, len(named))
	for i, a := range named {
		valid[i] = journal.Attachment{Network: conf.Name, ContainerID: a.ContainerID, Interface: a.IfName}
	}
	if _, err := conf.journal().Keep(conf.Name, valid); err != nil {
		return &Error{
			Code: types.ErrIOFailure, Step: "forget containers that are gone", Err: err,
			Remedy: "nothing is lost, and the next GC tries again; check the directory " + conf.journal().Directory,
		}
	}
	return nil
}
