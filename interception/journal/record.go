// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// version is that of the records' form. A reader refuses one that it does not know.
const version = 1

// Record is what one ADD applied, or a repair since. What it needs are the attachment and the plan; package repair believes only one with the
// pod's UID.
type Record struct {
	// Attachment is what it was applied for.
	Attachment
	// Time is when.
	Time time.Time
	// Planner is the version of the program that planned it, in any form: versions are compared for being the same only.
	Planner string
	// Namespace, Name and UID are the pod's.
	Namespace, Name, UID string
	// Netns is the path of the network namespace, as the runtime gave it (CNI_NETNS), and NetnsID what was there. Both may have been used anew
	// since: they help to find the namespace, and prove nothing.
	Netns   string
	NetnsID interception.NetnsID
	// Dataplane is the name of the one that applied it, such as "nftables", as package choice's ApplyBy says; empty where that was not said.
	Dataplane string
	// Plan is what was applied.
	Plan *interception.Plan
}

// wireRecord is the JSON form of a record.
type wireRecord struct {
	Version     int                `json:"version"`
	Network     string             `json:"network"`
	ContainerID string             `json:"containerID"`
	Interface   string             `json:"interface"`
	Time        time.Time          `json:"time"`
	Planner     string             `json:"planner"`
	Pod         wirePod            `json:"pod"`
	Netns       wireNetns          `json:"netns"`
	Dataplane   string             `json:"dataplane,omitempty"`
	Plan        *interception.Plan `json:"plan"`
}

type wirePod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

type wireNetns struct {
	Path   string `json:"path"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// encode writes what wireRecord reads.
func (r Record) encode() ([]byte, error) {
	if r.Plan == nil {
		return nil, errors.New("it has no plan")
	}
	return json.Marshal(wireRecord{
		Version: version, Network: r.Network, ContainerID: r.ContainerID, Interface: r.Interface, Time: r.Time, Planner: r.Planner,
		Pod: wirePod{r.Namespace, r.Name, r.UID}, Netns: wireNetns{r.Netns, r.NetnsID.Device, r.NetnsID.Inode},
		Dataplane: r.Dataplane, Plan: r.Plan,
	})
}

func decode(data []byte) (Record, error) {
	// The version comes first: other versions may have other fields.
	var head struct{ Version int }
	if err := json.Unmarshal(data, &head); err != nil {
		return Record{}, err
	}
	if head.Version != version {
		return Record{}, fmt.Errorf("its form is version %d, and this program reads %d", head.Version, version)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var wire wireRecord
	if err := decoder.Decode(&wire); err != nil {
		return Record{}, err
	}
	if wire.Plan == nil {
		return Record{}, errors.New("it has no plan")
	}
	return Record{
		Attachment: Attachment{wire.Network, wire.ContainerID, wire.Interface}, Time: wire.Time, Planner: wire.Planner,
		Namespace: wire.Pod.Namespace, Name: wire.Pod.Name, UID: wire.Pod.UID,
		Netns: wire.Netns.Path, NetnsID: interception.NetnsID{Device: wire.Netns.Device, Inode: wire.Netns.Inode},
		Dataplane: wire.Dataplane, Plan: wire.Plan,
	}, nil
}
