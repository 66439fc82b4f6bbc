"""A persistent matrix product for Hopper in CuTe DSL.

One warp copies tiles of both operands into a ring of stages (TMA); one or two warpgroups multiply
them (wgmma) and write their rows of the result through shared memory (TMA again). Blocks stay on
their multiprocessor and take one tile of the result after the other, in an order that keeps
neighbours close together. The blocks of a cluster compute tiles above each other, and share what
they load of `b`.

A result of few rows has too few tiles to keep all multiprocessors busy. Then the blocks of a
cluster also split K: each sums a part, and sends it into the first one's shared memory.
"""

import cutlass
from cutlass import Float32, Int32, Int64, cute, pipeline
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.nvgpu.warp import StMatrix8x8x16bOp
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import hopper_helpers as hopper

ROWS, THREADS = 64, 128
"""Of a warpgroup that multiplies."""
DEPTH = 64
"""How much of K a stage holds: 128 bytes."""
STRIPE = 64
"""Columns that are written at once, at most."""
BUFFERS = 2
WORDS = 4
"""Sums that a thread sends at once."""
LINE = 1024
"""What swizzled tiles are aligned to, in bytes."""
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 40, 232


@cute.jit
def place(index, rows, columns, group):
    """The tile with a number: columns of `group` tiles, one beside the other."""
    across = group * columns
    first = index // across * group
    height = cutlass.min(rows - first, group)
    return first + index % across % height, index % across // height


@cute.jit
def send(total: cute.Tensor, slot: cute.Tensor, arrived: cute.Pointer, receiver: Int32):
    """Copy a thread's sums into another block's `slot`; its barrier `arrived` counts the bytes."""
    words = cute.recast_tensor(total, Int32)
    for i in cutlass.range_constexpr(cute.size(total) // WORDS):
        four = tuple(words[i * WORDS + j] for j in range(WORDS))
        cute.arch.store_async_dsmem(slot[(None, i)].iterator, four, arrived, receiver)


@cute.jit
def add(total: cute.Tensor, slot: cute.Tensor):
    """Add what another block sent."""
    for i in cutlass.range_constexpr(cute.size(total) // WORDS):
        four = slot[(None, i)].load()
        for j in cutlass.range_constexpr(WORDS):
            total[i * WORDS + j] += four[j]


@cute.kernel
def kernel(
    load_a,
    a,
    load_b,
    b,
    store,
    out,
    mma: cute.TiledMma,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    layout_out: cute.ComposedLayout,
    rows: Int32,
    columns: Int32,
    steps: Int32,
    dtype: cutlass.Constexpr,
    groups: cutlass.Constexpr,
    width: cutlass.Constexpr,
    stages: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
    split: cutlass.Constexpr,
    group: cutlass.Constexpr,
):
    height, threads, stripe_width = ROWS * groups, THREADS * groups, min(STRIPE, width)
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    number = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    # Which row of tiles of the cluster's, and which part of K.
    rank, part = number, 0
    if cutlass.const_expr(split > 1):
        rank, part = number % cluster, number // cluster
    if warp == 0:
        for atom in (load_a, load_b, store):
            cpasync.prefetch_descriptor(atom)

    memory = SmemAllocator()
    barriers = memory.allocate_array(Int64, 2 * stages)
    tiles_a = memory.allocate_tensor(dtype, layout_a.outer, LINE, layout_a.inner)
    tiles_b = memory.allocate_tensor(dtype, layout_b.outer, LINE, layout_b.inner)
    stripes = memory.allocate_tensor(dtype, layout_out.outer, LINE, layout_out.inner)
    if cutlass.const_expr(split > 1):
        slots = memory.allocate_tensor(
            Float32,
            cute.make_layout((WORDS, threads, height * width // threads // WORDS, split - 1)),
            LINE,
        )
        arrived = memory.allocate_array(Int64, 1)
        if thread == 0:
            cute.arch.mbarrier_init(arrived, 1)
            cute.arch.mbarrier_arrive_and_expect_tx(arrived, height * width * 4 * (split - 1))
    stage_bytes = (height + width) * DEPTH * dtype.width // 8
    ring = pipeline.PipelineTmaAsync.create(
        num_stages=stages,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, threads),
        tx_count=stage_bytes,
        barrier_storage=barriers,
        cta_layout_vmnk=cute.make_layout((1, cluster, 1, split)),
        enable_multicast_signaling=True,
    )
    # Every tile with its coordinates behind it: (rows, columns, which row of tiles, which column).
    all_a = cute.local_tile(a, (height, DEPTH), (None, None))
    all_b = cute.local_tile(b, (width, DEPTH), (None, None))
    all_out = cute.local_tile(out, (height, stripe_width), (None, None))
    heights = cute.ceil_div(rows, cluster)
    size = cluster * split
    first, step, work = block // size, blocks // size, heights * columns

    if warp >= 4 * groups:
        if cutlass.const_expr(groups > 1):
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
        if warp == 4 * groups:
            to_a, from_a = cpasync.tma_partition(
                load_a,
                0,
                cute.make_layout(1),
                cute.group_modes(tiles_a, 0, 2),
                cute.group_modes(all_a, 0, 2),
            )
            to_b, from_b = cpasync.tma_partition(
                load_b,
                rank,
                cute.make_layout(cluster),
                cute.group_modes(tiles_b, 0, 2),
                cute.group_modes(all_b, 0, 2),
            )
            everybody = ((1 << cluster) - 1) << part * cluster
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, stages)
            for index in cutlass.range(first, work, step, unroll=1):
                high, column = place(index, heights, columns, group)
                row = high * cluster + rank
                for k in cutlass.range(part * steps, (part + 1) * steps, unroll=1):
                    ring.producer_acquire(state)
                    barrier = ring.producer_get_barrier(state)
                    cute.copy(
                        load_a,
                        from_a[(None, row, k)],
                        to_a[(None, state.index)],
                        tma_bar_ptr=barrier,
                    )
                    if cutlass.const_expr(cluster > 1):
                        cute.copy(
                            load_b,
                            from_b[(None, column, k)],
                            to_b[(None, state.index)],
                            tma_bar_ptr=barrier,
                            mcast_mask=cutlass.Int16(everybody),
                        )
                    else:
                        cute.copy(
                            load_b,
                            from_b[(None, column, k)],
                            to_b[(None, state.index)],
                            tma_bar_ptr=barrier,
                        )
                    state.advance()
            ring.producer_tail(state)
    else:
        if cutlass.const_expr(groups > 1):
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
        own = mma.get_slice(cute.make_layout(groups, stride=128)(warp // 4))
        given_a = mma.make_fragment_A(own.partition_A(tiles_a))
        given_b = mma.make_fragment_B(own.partition_B(tiles_b))
        total = cute.make_rmem_tensor(own.partition_shape_C((height, width)), Float32)
        blocks_k = cute.size(given_a, mode=[2])

        to_shared = hopper.get_smem_store_op(LayoutEnum.ROW_MAJOR, dtype, Float32)
        pairs = cute.make_copy_atom(StMatrix8x8x16bOp(False, 4), dtype)
        tiled = cute.make_tiled_copy_S(to_shared, cute.make_tiled_copy_C_atom(pairs, mma))
        writer = tiled.get_slice(thread)
        written = writer.partition_D(stripes)
        results = writer.retile(total)
        stripe = cute.make_rmem_tensor(cute.shape(written)[:3], dtype)
        share = cute.size(stripe)
        stored, target = cpasync.tma_partition(
            store,
            0,
            cute.make_layout(1),
            cute.group_modes(stripes, 0, 2),
            cute.group_modes(all_out, 0, 2),
        )
        everyone = pipeline.NamedBarrier(barrier_id=1, num_threads=threads)
        stripes_wide = width // stripe_width
        # Copies that may still read their buffer when the next one is written to.
        pending = BUFFERS - 1 if stripes_wide % BUFFERS == 0 else 0

        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, stages)
        done = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, stages)
        for index in cutlass.range(first, work, step, unroll=1):
            high, column = place(index, heights, columns, group)
            row = high * cluster + rank
            mma.set(warpgroup.Field.ACCUMULATE, False)
            ring.consumer_wait(state)
            warpgroup.fence()
            for at in cutlass.range_constexpr(blocks_k):
                where = (None, None, at, state.index)
                cute.gemm(mma, total, given_a[where], given_b[where], total)
                mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            state.advance()
            for _ in cutlass.range(1, steps, unroll=1):
                ring.consumer_wait(state)
                warpgroup.fence()
                for at in cutlass.range_constexpr(blocks_k):
                    where = (None, None, at, state.index)
                    cute.gemm(mma, total, given_a[where], given_b[where], total)
                warpgroup.commit_group()
                # What the step before read is free when only this one is under way.
                warpgroup.wait_group(1)
                ring.consumer_release(done)
                done.advance()
                state.advance()
            warpgroup.wait_group(0)
            ring.consumer_release(done)
            done.advance()

            if cutlass.const_expr(split > 1):
                if part > 0:
                    send(total, slots[(None, thread, None, part - 1)], arrived, rank)
                else:
                    cute.arch.mbarrier_wait(arrived, 0)
                    for other in cutlass.range_constexpr(split - 1):
                        add(total, slots[(None, thread, None, other)])
            if part == 0:
                for at in cutlass.range_constexpr(stripes_wide):
                    buffer = at % BUFFERS
                    for i in cutlass.range_constexpr(share):
                        stripe[i] = results[at * share + i].to(dtype)
                    cute.copy(tiled, stripe, written[(None, None, None, buffer)])
                    cute.arch.fence_proxy("async.shared", space="cta")
                    everyone.arrive_and_wait()
                    if warp == 0:
                        cute.copy(
                            store,
                            stored[(None, buffer)],
                            target[(None, row, column * stripes_wide + at)],
                        )
                        cute.arch.cp_async_bulk_commit_group()
                        cute.arch.cp_async_bulk_wait_group(pending, read=True)
                    everyone.arrive_and_wait()
        if warp == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def launch(
    a: cute.Tensor,
    b: cute.Tensor,
    out: cute.Tensor,
    multiprocessors: Int32,
    groups: cutlass.Constexpr,
    width: cutlass.Constexpr,
    stages: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
    split: cutlass.Constexpr,
    group: cutlass.Constexpr,
    stream,
):
    """`out = a @ b`: matrices whose rows lie one behind the other.

    Args:
        a: M x K.
        b: K x N.
        out: M x N.
        multiprocessors: how many the device has.
        groups: warpgroups that multiply; each has 64 rows of a tile: 1 or 2.
        width: columns of a tile: 32, 64, 128, 256.
        stages: how many steps are loaded ahead.
        cluster: blocks that share what they load: 1 or 2.
        split: blocks that share a tile, each with a part of K: 1, 2, 4.
        group: how many tiles above each other are computed before their neighbours.
        stream: where it runs.
    """
    b = cute.make_tensor(b.iterator, cute.select(b.layout, mode=[1, 0]))  # N x K
    kind_a, kind_b = LayoutEnum.from_tensor(a), LayoutEnum.from_tensor(b)
    height, stripe_width = ROWS * groups, min(STRIPE, width)
    tile = (height, width, DEPTH)
    mma = hopper.make_trivial_tiled_mma(
        a.element_type,
        b.element_type,
        kind_a.sm90_mma_major_mode(),
        kind_b.sm90_mma_major_mode(),
        Float32,
        (groups, 1, 1),
        (ROWS, width),
    )
    layout_a = hopper.make_smem_layout_a(kind_a, tile, a.element_type, stages)
    layout_b = hopper.make_smem_layout_b(kind_b, tile, b.element_type, stages)
    layout_out = hopper.make_smem_layout_epi(
        out.element_type, LayoutEnum.ROW_MAJOR, (height, stripe_width), BUFFERS
    )
    load_a, tensor_a = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SOp(),
        a,
        cute.slice_(layout_a, (None, None, 0)),
        (height, DEPTH),
    )
    shared_load = (
        cpasync.CopyBulkTensorTileG2SMulticastOp()
        if cluster > 1
        else cpasync.CopyBulkTensorTileG2SOp()
    )
    load_b, tensor_b = cpasync.make_tiled_tma_atom(
        shared_load, b, cute.slice_(layout_b, (None, None, 0)), (width, DEPTH), cluster
    )
    store, tensor_out = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileS2GOp(),
        out,
        cute.slice_(layout_out, (None, None, 0)),
        (height, stripe_width),
    )
    rows, columns = cute.ceil_div(a.shape[0], height), cute.ceil_div(b.shape[0], width)
    clusters = cute.ceil_div(rows, cluster) * columns
    if cutlass.const_expr(split == 1):
        clusters = cutlass.min(multiprocessors // cluster, clusters)
    kernel(
        load_a,
        tensor_a,
        load_b,
        tensor_b,
        store,
        tensor_out,
        mma,
        layout_a,
        layout_b,
        layout_out,
        rows,
        columns,
        cute.ceil_div(a.shape[1], DEPTH * split),
        a.element_type,
        groups,
        width,
        stages,
        cluster,
        split,
        group,
    ).launch(
        grid=(clusters * cluster * split, 1, 1),
        block=(THREADS * groups + 128, 1, 1),
        cluster=(cluster * split, 1, 1),
        stream=stream,
        min_blocks_per_mp=1,
    )
